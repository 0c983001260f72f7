// Moving through the recording: buttons, keys, playing, and the address of the place that is shown.
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
  writeAddress();
}
function chooseEpisode(index, step = 0) {
  pause();
  at.episode = Math.max(0, Math.min(episodes.length - 1, index));
  [...$("episodes").children].forEach((button, each) =>
    button.setAttribute("aria-pressed", String(each === at.episode)),
  );
  const list = $("episodes"),
    outer = list.getBoundingClientRect(),
    inner = list.children[at.episode].getBoundingClientRect();
  const edge = 48; // where the row fades out
  if (inner.left < outer.left + edge || inner.right > outer.right - edge)
    list.scrollLeft += inner.left - outer.left - edge;
  drawTimeline();
  drawExpectation();
  chooseStage(step);
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

// plan.html#episode=2&step=5: both are counted from 1, and the step after the last one is the final state.
let writtenAt = 0,
  writing = null;
function writeAddress() {
  // Browsers refuse to change the address very often.
  const wait = writtenAt + 400 - Date.now();
  if (wait > 0) {
    writing ??= window.setTimeout(() => {
      writing = null;
      writeAddress();
    }, wait);
    return;
  }
  writtenAt = Date.now();
  try {
    window.history.replaceState(null, "", `#episode=${at.episode + 1}&step=${at.stage + 1}`);
  } catch {
    // A page inside another document may not have an address of its own.
  }
}
// Goes to the place in the address; false if it names none.
function followAddress() {
  const wanted = new URLSearchParams(window.location.hash.slice(1));
  if (!wanted.has("episode") && !wanted.has("step")) return false;
  const counted = (name) => {
    const text = wanted.get(name) ?? "1";
    return /^[1-9]\d{0,8}$/.test(text) ? Number(text) - 1 : -1;
  };
  const [index, stage] = [counted("episode"), counted("step")];
  if (!episodes[index] || stage < 0 || stage > episodes[index].stages.length) return false;
  chooseEpisode(index, stage);
  return true;
}

$("first").addEventListener("click", () => step(-Infinity));
$("back").addEventListener("click", () => step(-1));
$("play").addEventListener("click", play);
$("next").addEventListener("click", () => step(1));
$("last").addEventListener("click", () => step(Infinity));
$("more").addEventListener("click", () => $("rollouts").scrollBy({ top: 0.8 * $("rollouts").clientHeight }));
$("rollouts").addEventListener("scroll", markMoreRollouts);
const scrollEpisodes = (by) => $("episodes").scrollBy({ left: by * 0.8 * $("episodes").clientWidth });
$("episodes-left").addEventListener("click", () => scrollEpisodes(-1));
$("episodes-right").addEventListener("click", () => scrollEpisodes(1));
$("episodes").addEventListener("scroll", markMoreEpisodes);
$("help").addEventListener("click", () => $("legend").showModal());
$("legend-close").addEventListener("click", () => $("legend").close());
$("legend").addEventListener("click", (event) => {
  if (event.target === $("legend")) $("legend").close(); // beside it
});
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
  if ($("legend").open) {
    if (event.key === "?") $("legend").close();
    return;
  }
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
    "?": () => $("legend").showModal(),
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
window.addEventListener("hashchange", followAddress);
window.addEventListener("resize", () => {
  markMoreEpisodes();
  if (episodes.length) drawStage();
});

drawHeader();
markMoreEpisodes();
if (!episodes.length) put($("rollouts"), make("p", "empty", "The recording has no episodes."));
else if (!followAddress()) chooseEpisode(0);
