// The imagined rollouts, one in each row.
const SMALLEST = 56, // heights of a frame, in pixels
  COMFORTABLE = view.kind === "vector" ? 110 : 90,
  LARGEST = view.kind === "vector" ? Math.max(34 * view.width, COMFORTABLE) : 220;
const GAP = 9,
  CAPTION = 40, // below a frame
  NARROWEST = 66; // a caption needs this much
let thumb = SMALLEST;

// Frames as large as the stage allows on this screen; a rollout is broken into several lines only where its frames
// would be small otherwise. The head of a row stands beside or above its frames, whichever leaves more room for them.
function fitFrames(rows) {
  const list = $("rollouts"),
    lengths = rows.map((row) => row.steps.length);
  let best = { size: 0, isAbove: false };
  for (let columns = Math.max(1, ...lengths); columns > 0 && best.size < COMFORTABLE; columns--)
    for (const isAbove of [false, true]) {
      const lines = lengths.reduce((sum, length) => sum + Math.ceil(length / columns), 0) || 1;
      const width = (list.clientWidth - (isAbove ? 26 : 132)) / columns - GAP,
        height = (list.clientHeight - rows.length * (isAbove ? 44 : 18)) / lines - CAPTION - GAP;
      const size = Math.min(LARGEST, height, width / ratio);
      if (width >= NARROWEST && size > best.size) best = { size, isAbove };
    }
  list.classList.toggle("heads-above", best.isAbove);
  thumb = Math.floor(Math.max(SMALLEST, best.size));
  document.documentElement.style.setProperty("--thumb-width", `${Math.max(NARROWEST, Math.floor(thumb * ratio))}px`);
}

function drawStage() {
  const s = stage(),
    rows = isOver() ? [] : rolloutsOf(s),
    plural = rows.length === 1 ? "" : "s";
  const whole = s.rollouts !== null && s.rollouts > rows.length ? ` of ${s.rollouts.toLocaleString("en")}` : "";
  $("stage-summary").textContent = isOver()
    ? ""
    : `${rows.length}${whole} rollout${whole ? "s" : plural}, ${s.steps.length} imaginary steps`;
  const nothing = isOver() ? "The episode is over." : "Nothing was imagined before this step.";
  fitFrames(rows);
  put($("rollouts"), ...(rows.length ? rows.map((row) => drawRollout(row, s)) : [make("p", "empty", nothing)]));
  $("rollouts").scrollTop = 0;
  markThoughts();
  markMoreRollouts();
}

function drawRollout(row, s) {
  const taken = row.steps[0].action === s.action;
  const value = make("span", "return", make("i", "", "g "), number(row.steps[row.steps.length - 1].rollout_return));
  value.title = "g: return of this rollout, the discounted rewards along it and the value of its last state";
  const head = make("div", "row-head", value, ...(taken ? [badge("taken")] : []), badge(row.reset));
  const line = make("div", "frames", ...row.steps.map((step) => drawThought(step, s.tree)));
  const whole = make("div", `rollout${taken ? " taken" : ""}`, head, line);
  whole.dataset.reset = row.reset;
  return whole;
}

function drawThought(step, tree) {
  const button = make("button", "thought");
  button.dataset.index = String(step.index);
  const wrong = isWrong(tree, step.node);
  if (step.frame === null) {
    const empty = make("span", "nothing", whyNothing(tree, step.node));
    empty.style.height = `${thumb}px`;
    button.append(empty);
  } else button.append(drawn(step.frame, Math.floor(thumb * ratio), thumb, wrong ? truthOf(step.node) : null));
  if (wrong || isRight(tree, step.node)) {
    button.classList.add(wrong ? "wrong" : "right");
    button.append(make("span", "verdict", wrong ? "✗" : "✓"));
  }
  const end = make("span", "", tree.terminated[step.node] ? "end" : "");
  const value = make("span", "", `g ${number(step.rollout_return)}`);
  if (step.node === bestNode(tree)) {
    value.className = "best";
    value.prepend(star(), " ");
  }
  button.append(
    make("span", "caption", make("b", "", glyph(step.action)), make("span", "", `r ${signed(step.reward)}`)),
    make("span", "caption", end, value),
  );
  const chance = step.agent_policy === null ? "" : `, agent ${percent(step.agent_policy[step.action])}`;
  button.title =
    `${actions[step.action]}: r ${number(step.reward)}, v ${number(step.value)}, g ${number(step.rollout_return)}` +
    `${chance}, base policy π ${percent(step.base_policy[step.action])}`;
  button.addEventListener("click", () => {
    pause();
    at.thought = step.index;
    at.node = step.node;
    drawSelection();
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
    outer = list.getBoundingClientRect(),
    inner = here.closest(".rollout").getBoundingClientRect();
  if (inner.top < outer.top) list.scrollTop -= outer.top - inner.top + 4;
  else if (inner.bottom > outer.bottom) list.scrollTop += inner.bottom - outer.bottom + 4;
}

// Tells how many rollouts are below the edge of the list.
function markMoreRollouts() {
  const edge = $("rollouts").getBoundingClientRect().bottom;
  const below = [...$("rollouts").children].filter((row) => row.getBoundingClientRect().bottom > edge + 8).length;
  $("more").hidden = below === 0;
  $("more").textContent = `↓ ${below} more rollout${below === 1 ? "" : "s"}`;
}
