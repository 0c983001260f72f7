// The real environment: its state, the timeline, and what the search expected.
const rendered = renderings !== null && episodes.some((one) => one.stages.some((s) => s.picture !== null));
const realRatio = rendered ? renderings.width / renderings.height : ratio;
document.documentElement.style.setProperty("--real-ratio", String(realRatio));
$("real-box").hidden = view.kind === "vector" && !rendered;
$("values").hidden = view.kind !== "vector";

function drawRealState() {
  const one = episode(),
    s = stage(),
    over = isOver();
  const frame = over ? (one.final_frame ?? s.frame) : s.frame,
    rendering = over ? one.final_picture : s.picture;
  const canvas = $("real"),
    isMissing = rendering === null && view.kind === "vector";
  $("no-picture").hidden = !isMissing;
  canvas.hidden = isMissing;
  if (view.kind === "vector") put($("values"), labelledBars(frames[frame], null));
  if (rendering !== null) paintRendering(canvas, rendering, 320, 320 / realRatio);
  else if (view.kind !== "vector") paint(canvas, frame, 320, 320 / ratio);
}

function drawTimeline() {
  const stages = episode().stages,
    count = stages.length,
    box = $("timeline");
  box.setAttribute("viewBox", `0 0 ${count + 1} 30`);
  box.setAttribute("aria-valuemin", "1");
  box.setAttribute("aria-valuemax", String(count + 1));
  const mark = (index, y, height, fill, kind) =>
    svg("rect", { x: index + 0.06, y, width: 0.88, height, fill, "data-kind": kind });
  const parts = stages.flatMap((s, index) => {
    const kind = outcomeOf(episode(), index);
    return [
      kind === "plain" ? mark(index, 9, 8, "var(--plain)", kind) : mark(index, 3, 20, outcomes[kind][0], kind),
      ...(isMispredicted(s) ? [mark(index, 26, 4, "var(--wrong)", "wrong")] : []),
    ];
  });
  const cursor = { id: "cursor", x: 0, y: 0.5, width: 1, height: 25, "vector-effect": "non-scaling-stroke" };
  put(box, ...parts, mark(count, 11, 4, "var(--plain)", "final"), svg("rect", cursor));
}

function drawGame() {
  const one = episode(),
    over = isOver(),
    s = stage();
  drawRealState();
  $("cursor").setAttribute("x", String(at.stage));
  $("timeline").setAttribute("aria-valuenow", String(at.stage + 1));
  const x = String((300 * (at.stage + 0.5)) / (one.stages.length + 1));
  $("expectation-cursor").setAttribute("x1", x);
  $("expectation-cursor").setAttribute("x2", x);
  const gathered = one.stages.slice(0, at.stage).reduce((sum, each) => sum + each.reward, 0);
  $("outcome").textContent = `${outcomes[endOf(one)]?.[1] ?? one.end} after ${one.stages.length} steps`;
  const child = s.tree.parent.findIndex((parent, node) => parent === 0 && s.tree.action[node] === s.action);
  const predicted = child < 0 ? "not imagined" : signed(s.tree.reward[child]);
  put(
    $("facts"),
    ...fact("real step", over ? "final state" : `${at.stage + 1} of ${one.stages.length}`),
    ...fact("reward so far", number(gathered), "sum of the real rewards"),
    ...fact("real action", over ? "–" : named(s.action)),
    ...fact("its reward", over ? "–" : signed(s.reward)),
    ...fact("predicted reward", over ? "–" : predicted),
  );
}

// What the search expected before each real step: mean and highest g.
function drawExpectation() {
  const stages = episode().stages,
    box = $("expectation"),
    width = 300,
    height = 64;
  const mean = stages.map((s) => s.tree.mean_return[0]),
    best = stages.map((s) => s.tree.max_return[0]);
  const low = Math.min(...mean),
    high = Math.max(...best),
    span = high - low || 1;
  const x = (t) => ((t + 0.5) / (stages.length + 1)) * width;
  const y = (value) => height - 4 - ((value - low) / span) * (height - 8);
  const line = (values, stroke) =>
    svg("polyline", { points: values.map((value, t) => `${x(t).toFixed(1)},${y(value).toFixed(1)}`).join(" "), stroke });
  box.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const cursor = svg("line", { id: "expectation-cursor", x1: 0, x2: 0, y1: 0, y2: height, stroke: "var(--text)" });
  put(box, line(best, "var(--best)"), line(mean, "var(--accent)"), cursor);
  for (const part of box.children) part.setAttribute("vector-effect", "non-scaling-stroke");
  put(
    $("expectation-key"),
    key("var(--best)", "★ max g"),
    key("var(--accent)", "mean g at the root"),
    make("span", "key", `${number(low)} to ${number(high)}`),
  );
}
