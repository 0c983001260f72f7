// Moving through the recording: buttons, keys, playing.
function drawSelection() {
  markThoughts();
  markNode();
  drawNode();
}
function drawAll() {
  drawGame();
  drawStage();
  drawTree();
  drawActions();
  markNode();
  drawNode();
}
function chooseNode(node) {
  pause();
  at.node = node;
  at.thought = null;
  drawSelection();
}
function chooseStage(index) {
  at.stage = Math.max(0, Math.min(episode().stages.length, index));
  at.thought = null;
  at.node = 0;
  drawAll();
}
function chooseEpisode(index) {
  pause();
  at.episode = Math.max(0, Math.min(episodes.length - 1, index));
  [...$("episodes").children].forEach((button, each) =>
    button.setAttribute("aria-pressed", String(each === at.episode)),
  );
  const list = $("episodes"),
    outer = list.getBoundingClientRect(),
    inner = list.children[at.episode].getBoundingClientRect();
  if (inner.left < outer.left || inner.right > outer.right) list.scrollLeft += inner.left - outer.left - 40;
  at.stage = 0;
  drawTimeline();
  drawExpectation();
  chooseStage(0);
}
function chooseThought(index) {
  const steps = isOver() ? [] : stage().steps;
  if (!steps.length) return;
  at.thought = index < 0 ? null : Math.min(index, steps.length - 1);
  at.node = at.thought === null ? 0 : steps[at.thought].node;
  drawSelection();
}
// One tick of playing: the next imaginary step, and after the last of them the real one.
function tick() {
  const next = at.thought === null ? 0 : at.thought + 1;
  if ($("thoughts").checked && !isOver() && next < stage().steps.length) chooseThought(next);
  else if (isOver()) {
    pause();
    return;
  } else chooseStage(at.stage + 1);
  schedule();
}
function schedule() {
  const pace = $("thoughts").checked && !isOver() && at.thought !== stage().steps.length - 1 ? 350 : 900;
  timer = window.setTimeout(tick, pace / Number($("speed").value));
}
function pause() {
  window.clearTimeout(timer);
  timer = null;
  $("play").textContent = "Play";
}
function play() {
  if (timer !== null) {
    pause();
    return;
  }
  if (isOver()) chooseStage(0);
  $("play").textContent = "Pause";
  schedule();
}
const step = (by) => {
  pause();
  chooseStage(at.stage + by);
};

$("first").addEventListener("click", () => step(-Infinity));
$("back").addEventListener("click", () => step(-1));
$("play").addEventListener("click", play);
$("next").addEventListener("click", () => step(1));
$("last").addEventListener("click", () => step(Infinity));
$("tree").addEventListener("click", (event) => {
  const node = event.target.getAttribute("data-node");
  if (node !== null) chooseNode(Number(node));
});
function scrub(event) {
  const box = $("timeline").getBoundingClientRect();
  pause();
  chooseStage(Math.floor(((event.clientX - box.left) / box.width) * (episode().stages.length + 1)));
}
$("timeline").addEventListener("pointerdown", (event) => {
  $("timeline").setPointerCapture(event.pointerId);
  scrub(event);
});
$("timeline").addEventListener("pointermove", (event) => {
  if (event.buttons) scrub(event);
});
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === "SELECT") return;
  const moves = {
    ArrowRight: () => step(1),
    ArrowLeft: () => step(-1),
    Home: () => step(-Infinity),
    End: () => step(Infinity),
    " ": play,
    ArrowDown: () => {
      pause();
      chooseThought(at.thought === null ? 0 : at.thought + 1);
    },
    ArrowUp: () => {
      pause();
      chooseThought(at.thought === null ? -1 : at.thought - 1);
    },
    "[": () => chooseEpisode(at.episode - 1),
    "]": () => chooseEpisode(at.episode + 1),
    Escape: () => {
      pause();
      chooseThought(-1);
    },
  };
  if (!moves[event.key]) return;
  event.preventDefault(); // space must not press the focused button as well, arrows must not scroll
  moves[event.key]();
});
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);

drawHeader();
if (episodes.length) {
  chooseEpisode(0);
  // page.html#episode=2&step=5 opens there, counted from 1.
  const wanted = new URLSearchParams(window.location.hash.slice(1));
  if (wanted.has("episode")) chooseEpisode(Number(wanted.get("episode")) - 1 || 0);
  if (wanted.has("step")) chooseStage(Number(wanted.get("step")) - 1 || 0);
} else put($("rollouts"), make("p", "empty", "The recording has no episodes."));
