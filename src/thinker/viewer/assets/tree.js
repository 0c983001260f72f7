// The search tree, the selected node, and the actions at the root.
const ramp = [
  [58, 60, 140],
  [44, 132, 168],
  [98, 184, 108],
  [244, 206, 66],
];
function colourOf(share) {
  const x = Math.max(0, Math.min(0.9999, share)) * (ramp.length - 1),
    i = Math.floor(x);
  return `rgb(${ramp[i].map((c, channel) => Math.round(c + (ramp[i + 1][channel] - c) * (x - i))).join(",")})`;
}
function placed(tree) {
  const children = tree.parent.map(() => []);
  tree.parent.forEach((parent, node) => {
    if (parent >= 0) children[parent].push(node);
  });
  for (const list of children) list.sort((a, b) => tree.action[a] - tree.action[b]);
  const x = [],
    y = [];
  let next = 0,
    deepest = 0;
  const visit = (node, depth) => {
    deepest = Math.max(deepest, depth);
    y[node] = depth;
    for (const child of children[node]) visit(child, depth + 1);
    x[node] = children[node].length
      ? (x[children[node][0]] + x[children[node][children[node].length - 1]]) / 2
      : next++;
  };
  visit(0, 0);
  return { x, y, leaves: Math.max(next, 1), deepest: Math.max(deepest, 1) };
}

function drawTree() {
  const tree = stage().tree,
    box = $("tree"),
    { x, y, leaves, deepest } = placed(tree);
  const width = 396,
    height = 300,
    pad = 24;
  box.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const column = (width - 2 * pad) / leaves,
    row = (height - 2 * pad) / deepest;
  const px = (node) => pad + (x[node] + 0.5) * column,
    py = (node) => pad + y[node] * row;
  const largest = Math.max(4.5, Math.min(13, 0.48 * column, 0.34 * row));
  const most = Math.max(1, ...tree.visits.slice(1));
  const radius = (node) =>
    node === 0 ? Math.max(largest, 9) : Math.max(2.6, largest * Math.sqrt(tree.visits[node] / most));
  const values = tree.mean_return,
    low = Math.min(...values),
    high = Math.max(...values);
  const share = (node) => (high > low ? (values[node] - low) / (high - low) : 0.5);
  const best = bestNode(tree);
  const nameOf = (node) => (node === 0 ? "root" : actions[tree.action[node]]);
  const parts = [];
  tree.parent.forEach((parent, node) => {
    if (parent < 0) return;
    const taken = parent === 0 && tree.action[node] === stage().action;
    const middle = (py(parent) + py(node)) / 2;
    parts.push(
      svg("path", {
        class: `edge${taken ? " taken" : ""}`,
        "stroke-width": taken ? 3 : 1.2,
        d: `M${px(parent)},${py(parent)} C${px(parent)},${middle} ${px(node)},${middle} ${px(node)},${py(node)}`,
      }),
    );
  });
  tree.parent.forEach((parent, node) => {
    const circle = svg("circle", {
      class: `node${tree.fresh[node] ? "" : " carried"}`,
      cx: px(node),
      cy: py(node),
      r: radius(node),
      fill: colourOf(share(node)),
      "stroke-width": 1.5,
      "data-node": node,
    });
    const visits = node === 0 ? "" : `n ${tree.visits[node]}, `;
    circle.append(svg("title", {}, `${nameOf(node)}: ${visits}mean g ${number(values[node])}`));
    parts.push(circle);
    // A larger invisible target for fingers.
    parts.push(
      svg("circle", {
        cx: px(node),
        cy: py(node),
        r: Math.max(radius(node), 9),
        fill: "transparent",
        "data-node": node,
        style: "cursor:pointer",
      }),
    );
    if (isWrong(tree, node))
      parts.push(
        svg("circle", { class: "wrong-ring", cx: px(node), cy: py(node), r: radius(node) + 3, "stroke-width": 2 }),
      );
    if (node === best)
      parts.push(svg("text", { class: "star", x: px(node), y: py(node), "font-size": 1.5 * radius(node) + 4 }, "★"));
    if (parent === 0) {
      // beside the node, away from its edge, where there is room
      const beside = column > 2 * radius(node) + 20,
        side = px(node) < px(0) ? -1 : 1;
      const x = beside ? px(node) + side * (radius(node) + 9) : px(node),
        y = beside ? py(node) : py(node) - radius(node) - 9;
      parts.push(svg("text", { x, y, "font-size": 13, "stroke-width": 3 }, glyph(tree.action[node])));
    }
  });
  put(box, ...parts);
  const where = best === 0 ? " (the root)" : tree.fresh[best] ? "" : " (carried over)";
  const when = isOver() ? "before the last step: " : "";
  $("tree-summary").textContent = `${when}${tree.parent.length} nodes, ★ max g ${number(tree.max_return[0])}${where}`;
  const ruler = make("span", "scale");
  ruler.style.background = `linear-gradient(90deg, ${[0, 0.33, 0.67, 1].map(colourOf).join(",")})`;
  put(
    $("tree-key"),
    make("span", "key", number(low), ruler, `${number(high)} mean g`),
    make("span", "key", "size: visits n"),
    ...(planner ? [] : [make("span", "key", "dashed: carried over, not reached again")]),
  );
}

function markNode() {
  for (const circle of $("tree").querySelectorAll(".node")) {
    const isHere = Number(circle.dataset.node) === at.node;
    circle.classList.toggle("selected", isHere);
    circle.setAttribute("stroke-width", isHere ? "3" : "1.5");
  }
}

function drawNode() {
  const tree = stage().tree,
    node = at.node,
    path = [];
  for (let each = node; tree.parent[each] >= 0; each = tree.parent[each]) path.unshift(glyph(tree.action[each]));
  const truth = truthOf(node);
  const [width, height] = view.kind === "vector" ? [176, 132] : [84, Math.min(84 / ratio, 126)];
  const shown = (frame, text, other) =>
    make("figure", "", drawn(frame, width, height, other), make("figcaption", "", text));
  const pictures = make("div", "pictures");
  if (tree.frame[node] === null) {
    const text = tree.fresh[node] ? "predicted" : "carried over";
    const why = tree.fresh[node] ? whyNothing(tree, node) : "not predicted again";
    pictures.append(make("figure", "", make("div", "nothing", why), make("figcaption", "", text)));
  } else {
    const verdict = isRight(tree, node) ? " ✓" : isWrong(tree, node) ? ` ✗ (error ${percent(tree.error[node])})` : "";
    const text = node === 0 ? "real state" : `predicted${verdict}`;
    pictures.append(shown(tree.frame[node], text, isWrong(tree, node) ? truth : null));
  }
  if (node !== 0 && truth !== null && view.kind !== "vector") pictures.append(shown(truth, "actual", null));
  const policy = make("div", "mini");
  policy.title = "base policy π in this state";
  tree.policy[node].forEach((p, action) => {
    const bar = make("i");
    bar.style.height = `${Math.round(34 * p)}px`;
    const column = make("div", "", bar, glyph(action));
    column.title = `${actions[action]}: ${percent(p)}`;
    policy.append(column);
  });
  const facts = make(
    "dl",
    "facts",
    ...fact("path", node === 0 ? "root" : path.join(" ")),
    ...fact("r", node === 0 ? "–" : number(tree.reward[node]), "predicted reward of the step into this state"),
    ...fact("v", number(tree.value[node]), "value of this state"),
    ...fact("g", number(tree.rollout_return[node]), "return of the path from the root to this state"),
    ...fact("mean g", number(tree.mean_return[node]), "mean over all paths through this state"),
    ...fact("max g", number(tree.max_return[node]), "highest of all paths through this state"),
    ...fact("n", node === 0 ? "–" : tree.visits[node], "how often the search reached this state"),
  );
  put($("node"), pictures, make("div", "", facts, policy));
}

function drawActions() {
  const s = stage(),
    tree = s.tree,
    child = actions.map(() => -1);
  tree.parent.forEach((parent, node) => {
    if (parent === 0) child[tree.action[node]] = node;
  });
  const of = (column) => actions.map((_, action) => (child[action] < 0 ? null : column[child[action]]));
  const columns = [
    ["n", of(tree.visits), String, "visits: how often the search reached the state after this action"],
    ["mean g", of(tree.mean_return), number, "mean return of all paths that begin with this action"],
    ["max g", of(tree.max_return), number, "highest return of all paths that begin with this action"],
    [actor, s.agent_policy ?? actions.map(() => null), percent, actorMeaning],
    ["π", tree.policy[0], percent, "base policy of the model"],
  ];
  const titled = ([name, , , meaning]) => {
    const cell = make("th", "", name);
    cell.title = meaning;
    return cell;
  };
  const head = make("tr", "", make("th", "", "action"), ...columns.map(titled));
  const rows = actions.map((_, action) => {
    const cells = columns.map(([, values, show]) => {
      const known = values.filter((x) => x !== null),
        low = Math.min(0, ...known),
        high = show === percent ? 1 : Math.max(0, ...known);
      const bar = make("div", "bar"),
        fill = make("i"),
        x = values[action];
      const span = high - low || 1; // bars begin at zero, wherever that lies
      fill.style.left = `${(100 * (Math.min(x ?? 0, 0) - low)) / span}%`;
      fill.style.width = `${(100 * Math.abs(x ?? 0)) / span}%`;
      bar.append(fill, make("span", "", x === null ? "–" : show(x)));
      return make("td", "", bar);
    });
    const line = make(
      "tr",
      `clickable${action === s.action && !isOver() ? " taken" : ""}`,
      make("td", "", named(action)),
      ...cells,
    );
    if (child[action] >= 0) line.addEventListener("click", () => chooseNode(child[action]));
    return line;
  });
  put($("actions"), make("table", "", make("thead", "", head), make("tbody", "", ...rows)));
}
