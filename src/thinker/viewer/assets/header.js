// The header, the keys to colours and badges, and the legend.
const outcomes = {
  gain: ["var(--gain)", "gain"],
  loss: ["var(--loss)", "loss"],
  solved: ["var(--good)", "solved"],
  failed: ["var(--failed)", "not solved"],
};
const badges = {
  taken: ["taken", "starts with the real action that was then taken"],
  chosen: ["↺ reset", `the ${planner ? "search returned" : "agent chose to return"} to the root`],
  forced: ["⇥ depth limit", "the depth limit forced a return to the root"],
  none: planner
    ? ["end of search", "the last rollout; the real step comes next"]
    : ["end of stage", "the last imaginary step; the real step comes next"],
};
const badge = (kind) => {
  const element = make("span", `badge ${kind}`, badges[kind][0]);
  element.title = badges[kind][1];
  return element;
};
const star = () => {
  const element = make("span", "star", "★");
  element.title = "highest g in the tree";
  return element;
};

function drawHeader() {
  $("title").textContent = recording.title || "Plans";
  document.title = $("title").textContent;
  const judged = episodes.filter((one) => endOf(one) !== "ended");
  const solved = judged.filter((one) => one.solved).length;
  $("subtitle").textContent = [
    recording.environment,
    planner
      ? `${planner.name}: ${planner.simulations.toLocaleString("en")} simulations per real step`
      : `${recording.stage_length - 1} imaginary steps per real step`,
    recording.max_depth === null ? "no depth limit" : `depth limit ${recording.max_depth}`,
    ...(judged.length ? [`${solved} of ${judged.length} episodes solved`] : []),
    ...Object.entries(recording.notes).map(([name, value]) => `${name}: ${value}`),
  ].join(" · ");
  $("subtitle").title = $("subtitle").textContent;
  put(
    $("episodes"),
    ...episodes.map((one, index) => {
      const state = endOf(one);
      const mark = { solved: "✓", failed: "✗", ended: "•" }[state];
      const name = `${index + 1}${one.level === null ? "" : ` · #${one.level}`}`;
      const button = make("button", `episode ${state}`, make("span", "mark", mark), name);
      const place = one.level === null ? "" : ` (number ${one.level} of its set)`;
      button.title = `Episode ${index + 1}${place}: ${outcomes[state]?.[1] ?? one.end}, ${one.stages.length} real steps`;
      button.addEventListener("click", () => chooseEpisode(index));
      return button;
    }),
  );
  drawKeys();
  drawLegend();
}

// Only what this recording contains is explained on the page; the legend explains everything.
function drawKeys() {
  const stages = episodes.flatMap((one) => one.stages);
  const seen = new Set(episodes.flatMap((one) => one.stages.map((_, index) => outcomeOf(one, index))));
  put(
    $("timeline-key"),
    ...Object.keys(outcomes)
      .filter((kind) => seen.has(kind))
      .map((kind) => key(...outcomes[kind])),
    ...(stages.some(isMispredicted) ? [key("var(--wrong)", "wrong prediction")] : []),
  );
  $("colours-key").hidden = !view.colours;
  put($("colours-key"), ...Object.entries(view.colours ?? {}).map(([name, colour]) => key(colour, name)));
  const steps = stages.flatMap((s) => s.steps);
  const explained = (element, text) => make("span", "key", element, text);
  put(
    $("stage-key"),
    explained(badge("taken"), "starts with the real action"),
    ...["chosen", "forced"]
      .filter((kind) => steps.some((step) => step.reset === kind))
      .map((kind) => explained(badge(kind), kind === "forced" ? "forced a reset" : planner ? "to the root" : "by the agent")),
    explained(star(), "highest g in the tree"),
    key("var(--good)", "✓ prediction right"),
    key("var(--wrong)", "✗ prediction wrong"),
  );
}

function drawLegend() {
  const group = (title, ...entries) =>
    make(
      "section",
      "",
      make("h3", "", title),
      make("dl", "", ...entries.flatMap(([term, text]) => [make("dt", "", term), make("dd", "", text)])),
    );
  put(
    $("legend-text"),
    group(
      "Numbers",
      ["root", "the real state from which every rollout of the stage starts"],
      ["r", "predicted reward of the step into a state"],
      ["v", "predicted value: the discounted rewards expected after a state"],
      [
        "g",
        "return of the path from the root to a state: γ r₁ + γ² r₂ + … + γⁿ rₙ + γⁿ⁺¹ v, with " +
          `γ = ${recording.discount} (equation 1 of the paper). All returns are counted from the root`,
      ],
      ["mean g, max g", "over all paths in the tree that pass through a state or begin with an action"],
      [
        "n",
        `visits: how often the search reached a state${planner ? "" : ", including earlier stages"}; not counted at the root`,
      ],
      [actor, actorMeaning],
      ["π", "base policy: the model’s own probabilities of the actions"],
    ),
    group(
      "Timeline",
      [key("var(--gain)", "gain"), "the real reward was higher than usual"],
      [key("var(--loss)", "loss"), "the real reward was lower than usual"],
      [key("var(--good)", "solved"), "the episode ended in success"],
      [key("var(--failed)", "not solved"), "the episode ended without success"],
      [key("var(--wrong)", "wrong"), "the state after this real step was predicted incorrectly"],
    ),
    group(
      "Rollouts",
      [star(), "highest g in the tree; a state that was carried over is marked only there"],
      ...Object.keys(badges).map((kind) => [badge(kind), badges[kind][1]]),
      [key("var(--good)", "✓"), "the real actions led here, and the prediction was right"],
      [key("var(--wrong)", "✗"), "the real actions led here, and the prediction was wrong"],
      ["no mark", "the real actions took another path, so nothing can be checked"],
      ...(view.kind === "board" ? [["? square", "the model predicts no tile there, or several"]] : []),
      ...(view.kind === "vector" ? [["bars", "each number is scaled to its largest size in the recording"]] : []),
    ),
    group(
      "Tree",
      ["size, colour", "visits n, mean g"],
      ["thick line", "the real action"],
      ...(planner ? [["nodes", "of a large search only some are shown; all numbers are those of the whole search"]] : []),
      ["dashed", "carried over from the previous stage and not reached again: its numbers are old"],
    ),
    group(
      "Keys",
      ["← →", "previous, next real step"],
      ["↑ ↓", "previous, next imaginary step; Escape: the whole stage"],
      ["space", "play or pause"],
      ["[ ]", "previous, next episode"],
      ["Home End", "first, final state"],
    ),
  );
}

// Arrows at the ends of the row of episodes, while there is more to see there.
function markMoreEpisodes() {
  const list = $("episodes"),
    hidden = list.scrollWidth - list.clientWidth;
  for (const [id, isMore] of [
    ["episodes-left", list.scrollLeft > 1],
    ["episodes-right", list.scrollLeft < hidden - 1],
  ]) {
    $(id).hidden = hidden <= 1;
    $(id).disabled = !isMore;
  }
  list.classList.toggle("more-left", list.scrollLeft > 1);
  list.classList.toggle("more-right", list.scrollLeft < hidden - 1);
}
