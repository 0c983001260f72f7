// The header, the real game and the imagined rollouts.
function drawHeader() {
  $("title").textContent = recording.title || "A plan";
  document.title = $("title").textContent;
  const depth = recording.max_depth === null ? "no depth limit" : `depth ${recording.max_depth}`;
  const notes = Object.entries(recording.notes).map(([name, value]) => `${name}: ${value}`);
  $("subtitle").textContent = [
    recording.environment,
    `${recording.stage_length - 1} imaginary steps per real step`,
    depth,
    ...notes,
  ].join(" · ");
  $("subtitle").title = $("subtitle").textContent;
  put(
    $("episodes"),
    ...episodes.map((one, index) => {
      const state =
        one.solved === true ? "solved" : one.solved === false && one.end !== "unfinished" ? "failed" : "ended";
      const mark = { solved: "✓", failed: "✗", ended: "•" }[state];
      const name = `${index + 1}${one.level === null ? "" : ` · #${one.level}`}`;
      const button = make("button", `episode ${state}`, make("span", "mark", mark), name);
      button.title = `episode ${name}: ${state}, ${one.stages.length} real steps`;
      button.addEventListener("click", () => chooseEpisode(index));
      return button;
    }),
  );
  put(
    $("timeline-key"),
    key("var(--gain)", "gain"),
    key("var(--loss)", "loss"),
    key("var(--good)", "solved"),
    key("var(--bad)", "failed or foreseen wrongly"),
  );
  const seen = (className, text, meaning) => make("span", "key", make("span", `badge ${className}`, text), meaning);
  put(
    $("stage-key"),
    seen("taken", "taken", "begins with the real action"),
    seen("best", "best", "highest return"),
    seen("chosen", "↺ chosen", "the agent reset"),
    seen("forced", "⇥ forced", "reset at the greatest depth"),
    key("var(--good)", "came true"),
    key("var(--bad)", "turned out wrong"),
  );
}

function drawTimeline() {
  const stages = episode().stages,
    count = stages.length,
    box = $("timeline");
  box.setAttribute("viewBox", `0 0 ${count + 1} 30`);
  box.setAttribute("aria-valuemin", "0");
  box.setAttribute("aria-valuemax", String(count));
  const colour = {
    solved: "var(--good)",
    failed: "var(--bad)",
    gain: "var(--gain)",
    loss: "var(--loss)",
    plain: "var(--plain)",
  };
  const parts = [];
  stages.forEach((s, index) => {
    const kind = happened(episode(), index),
      tall = kind !== "plain";
    parts.push(
      svg("rect", {
        x: index + 0.06,
        y: tall ? 3 : 9,
        width: 0.88,
        height: tall ? 20 : 8,
        fill: colour[kind],
        "data-kind": kind,
      }),
    );
    if (wentWrong(s))
      parts.push(
        svg("rect", { x: index + 0.06, y: 26, width: 0.88, height: 4, fill: "var(--bad)", "data-kind": "wrong" }),
      );
  });
  parts.push(svg("rect", { x: count + 0.06, y: 11, width: 0.88, height: 4, fill: "var(--plain)" }));
  parts.push(
    svg("rect", {
      id: "cursor",
      x: 0,
      y: 0.5,
      width: 1,
      height: 25,
      fill: "none",
      stroke: "var(--text)",
      "stroke-width": 2,
      "vector-effect": "non-scaling-stroke",
    }),
  );
  put(box, ...parts);
}

function drawGame() {
  const one = episode(),
    over = isOver(),
    s = stage();
  const canvas = $("real");
  const frame = over ? (one.final_frame ?? s.frame) : s.frame;
  paint(canvas, frame, 320, 320 / ratio);
  $("cursor").setAttribute("x", String(at.stage));
  $("timeline").setAttribute("aria-valuenow", String(at.stage));
  const x = String((300 * (at.stage + 0.5)) / (one.stages.length + 1));
  $("expectation-cursor").setAttribute("x1", x);
  $("expectation-cursor").setAttribute("x2", x);
  const gathered = one.stages.slice(0, at.stage).reduce((sum, each) => sum + each.reward, 0);
  const result = { solved: "solved", failed: "not solved", ended: one.end }[
    one.solved === true ? "solved" : one.solved === false && one.end !== "unfinished" ? "failed" : "ended"
  ];
  $("outcome").textContent = `${result} after ${one.stages.length} steps`;
  const child = s.tree.parent.findIndex((parent, node) => parent === 0 && s.tree.action[node] === s.action);
  const foreseen = child < 0 ? "not imagined" : signed(s.tree.reward[child]);
  put(
    $("facts"),
    ...fact("real step", over ? "after the last" : `${at.stage + 1} of ${one.stages.length}`),
    ...fact("return so far", number(gathered)),
    ...fact("real action", over ? "–" : named(s.action)),
    ...fact("reward", over ? "–" : signed(s.reward)),
    ...fact("reward foreseen", over ? "–" : foreseen),
  );
}

// What the search expected before each real step: mean and highest return at the root.
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
  const line = (values) => values.map((value, t) => `${x(t).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  box.setAttribute("viewBox", `0 0 ${width} ${height}`);
  put(
    box,
    svg("polyline", {
      points: line(best),
      fill: "none",
      stroke: "var(--gain)",
      "stroke-width": 1.5,
      "vector-effect": "non-scaling-stroke",
    }),
    svg("polyline", {
      points: line(mean),
      fill: "none",
      stroke: "var(--accent)",
      "stroke-width": 1.5,
      "vector-effect": "non-scaling-stroke",
    }),
    svg("line", {
      id: "expectation-cursor",
      x1: 0,
      x2: 0,
      y1: 0,
      y2: height,
      stroke: "var(--text)",
      "stroke-width": 1,
      "vector-effect": "non-scaling-stroke",
    }),
  );
  put(
    $("expectation-key"),
    make("span", "key", "expected:"),
    key("var(--gain)", "best return"),
    key("var(--accent)", "mean return"),
    make("span", "key", `${number(low)} to ${number(high)}`),
  );
}

function drawStage() {
  const s = stage(),
    rows = isOver() ? [] : rolloutsOf(s),
    tree = s.tree;
  const returns = rows.map((row) => row.steps[row.steps.length - 1].rollout_return);
  const best = Math.max(...returns);
  $("stage-summary").textContent = isOver()
    ? ""
    : `${rows.length} rollout${rows.length === 1 ? "" : "s"}, ${s.steps.length} imaginary steps`;
  if (!rows.length) {
    put(
      $("rollouts"),
      make("p", "empty", isOver() ? "The episode is over." : "Nothing was imagined before this step."),
    );
    return;
  }
  put(
    $("rollouts"),
    ...rows.map((row, index) => {
      const taken = row.steps[0].action === s.action;
      const badges = make("div", "badges");
      if (taken) badges.append(make("span", "badge taken", "taken"));
      if (returns[index] === best) badges.append(make("span", "badge best", "best"));
      const label = { forced: "⇥ forced", chosen: "↺ chosen", none: "stage over" }[row.reset];
      const reset = make("span", `badge ${row.reset}`, label);
      reset.title = {
        forced: "reset to the root, forced at the greatest depth",
        chosen: "the agent chose to go back to the root",
        none: "the stage ended here",
      }[row.reset];
      const value = make("span", "return", number(returns[index]));
      value.title = "rollout return: rewards and the last node’s value, discounted";
      const head = make("div", "row-head", value, badges, reset);
      const line = make("div", "frames", ...row.steps.map((step) => drawThought(step, tree)));
      const whole = make("div", `rollout${taken ? " taken" : ""}`, head, line);
      whole.dataset.reset = row.reset;
      return whole;
    }),
  );
  markThoughts();
}

function drawThought(step, tree) {
  const button = make("button", "thought");
  button.dataset.index = String(step.index);
  const truth = truthOf(step.node);
  if (step.frame === null)
    button.append(make("span", "nothing", tree.terminated[step.node] ? "after the end" : "no picture"));
  else {
    const canvas = make("canvas");
    paint(canvas, step.frame, thumb * ratio, thumb, isWrong(tree, step.node) ? truth : null);
    button.append(canvas);
  }
  if (isWrong(tree, step.node)) {
    button.classList.add("wrong");
    button.append(make("span", "verdict", "✗"));
  }
  if (isRight(tree, step.node)) {
    button.classList.add("right");
    button.append(make("span", "verdict", "✓"));
  }
  const caption = make(
    "span",
    "caption",
    make("b", "", glyph(step.action)),
    make("span", "", tree.terminated[step.node] ? "ends" : signed(step.reward)),
  );
  button.append(caption);
  const chance = step.agent_policy === null ? "" : `, agent ${percent(step.agent_policy[step.action])}`;
  button.title =
    `${actions[step.action]}: reward ${number(step.reward)}, value ${number(step.value)}, ` +
    `return ${number(step.rollout_return)}${chance}, base policy ${percent(step.base_policy[step.action])}`;
  button.addEventListener("click", () => {
    pause();
    at.thought = step.index;
    at.node = step.node;
    drawSelection(true);
  });
  return button;
}

function markThoughts() {
  for (const button of $("rollouts").querySelectorAll(".thought")) {
    const index = Number(button.dataset.index);
    button.classList.toggle("later", at.thought !== null && index > at.thought);
    const isHere = at.thought === null ? at.node !== 0 && stage().steps[index].node === at.node : index === at.thought;
    button.classList.toggle("selected", isHere);
  }
  const here = at.thought === null ? null : $("rollouts").querySelector(`[data-index="${at.thought}"]`);
  if (!here) return;
  // Only the list itself is scrolled, never the page.
  const list = $("rollouts"),
    row = here.closest(".rollout"),
    outer = list.getBoundingClientRect(),
    inner = row.getBoundingClientRect();
  if (inner.top < outer.top) list.scrollTop -= outer.top - inner.top + 4;
  else if (inner.bottom > outer.bottom) list.scrollTop += inner.bottom - outer.bottom + 4;
}
