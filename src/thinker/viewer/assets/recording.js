// The recording, where the reader is in it, and what its stages say. Every text of the recording is put on the page
// through textContent; none is ever parsed as markup.
const recording = JSON.parse(document.getElementById("recording").textContent);
const { view, frames, renderings, episodes, actions, planner } = recording;
// Who acts, as the name of its probabilities of the real action.
const actor = planner ? "planner" : "agent";
const actorMeaning = planner
  ? "the planner’s improved policy: its probabilities of the real action"
  : "probabilities that the real action was drawn from";
const at = { episode: 0, stage: 0, thought: null, node: 0 }; // thought: index of the imaginary step, null for all
let timer = null;

const $ = (id) => document.getElementById(id);
const put = (parent, ...children) => {
  parent.replaceChildren(...children);
  return parent;
};
function make(tag, className, ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children.map((child) => (child instanceof Node ? child : String(child))));
  return element;
}
function svg(tag, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}
// Two decimals, and fewer of large numbers.
const number = (x) => {
  if (x === null || x === undefined) return "–";
  const size = Math.abs(x);
  const text = x.toFixed(size < 100 ? 2 : size < 1000 ? 1 : 0);
  return text.replace("-", "−").replace(/^−(0\.?0*)$/, "$1");
};
const signed = (x) => (x > 0 ? "+" : "") + number(x);
const percent = (x) => (x === null || x === undefined ? "–" : `${Math.round(100 * x)} %`);
const glyphs = { up: "↑", down: "↓", left: "←", right: "→", upleft: "↖", upright: "↗", downleft: "↙", downright: "↘", noop: "·" };
// An action in little room: an arrow, a short name, or its number.
const isShort = (action) => actions[action].length <= 4;
// "up-fire" is ↑ with the button pressed: ↑•
const arrow = (action) => {
  const [, direction, button] = /^(.*?)(fire)?$/.exec(actions[action].toLowerCase().replace(/[^a-z]/g, ""));
  return Object.hasOwn(glyphs, direction) ? glyphs[direction] + (button ? "•" : "") : "";
};
const glyph = (action) => arrow(action) || (isShort(action) ? actions[action] : String(action));
// A number of an observation: three significant digits.
const short = (x) => {
  const [digits, exponent] = x.toPrecision(3).split("e");
  const plain = digits.includes(".") ? digits.replace(/\.?0+$/, "") : digits;
  return `${plain}${exponent ? `e${Number(exponent)}` : ""}`.replaceAll("-", "−");
};
const named = (action) => (isShort(action) && !arrow(action) ? actions[action] : `${glyph(action)} ${actions[action]}`);
const episode = () => episodes[at.episode];
const stage = () => episode().stages[Math.min(at.stage, episode().stages.length - 1)];
const isOver = () => at.stage >= episode().stages.length; // after the last real step: the final state
const fact = (name, value, meaning = "") => {
  const term = make("dt", "", name);
  term.title = meaning;
  return [term, make("dd", "", value)];
};
const key = (colour, text) => {
  const dot = make("span", "dot");
  dot.style.background = colour;
  return make("span", "key", dot, text);
};

const depthOf = (tree, node) => {
  let depth = 0;
  while (tree.parent[node] >= 0) {
    node = tree.parent[node];
    depth++;
  }
  return depth;
};
// The node with the highest g. The first one of several.
const bestNode = (tree) => tree.rollout_return.indexOf(Math.max(...tree.rollout_return));
const whyNothing = (tree, node) =>
  tree.terminated[tree.parent[node]] ? "after the predicted end" : "no predicted state";
const isWrong = (tree, node) => tree.error[node] !== null && tree.error[node] > view.tolerance;
const isRight = (tree, node) => tree.error[node] !== null && tree.error[node] <= view.tolerance;
// The real state that a prediction is compared with, if the real actions led there.
function truthOf(node) {
  const tree = stage().tree;
  if (tree.error[node] === null) return null;
  const later = episode().stages.indexOf(stage()) + depthOf(tree, node);
  return later < episode().stages.length ? episode().stages[later].frame : episode().final_frame;
}
function rolloutsOf(one) {
  const rows = [];
  let row = null;
  one.steps.forEach((step, index) => {
    if (row === null) rows.push((row = { steps: [], reset: "none" }));
    row.steps.push({ ...step, index });
    if (step.reset !== "none") {
      row.reset = step.reset;
      row = null;
    }
  });
  return rows;
}
const rewards = episodes.flatMap((one) => one.stages.map((s) => s.reward)).sort((a, b) => a - b);
const usual = rewards[Math.floor(rewards.length / 2)] ?? 0;
// How an episode ended: "solved" and "failed" where the environment tells success, else "ended".
const endOf = (one) =>
  one.solved === true ? "solved" : one.solved === false && one.end !== "unfinished" ? "failed" : "ended";
// What a real step led to.
function outcomeOf(one, index) {
  const { reward } = one.stages[index];
  if (index === one.stages.length - 1 && endOf(one) !== "ended") return endOf(one);
  if (reward > usual + 1e-6) return "gain";
  return reward < usual - 1e-6 ? "loss" : "plain";
}
const isMispredicted = (s) => s.tree.parent.some((parent, node) => parent === 0 && isWrong(s.tree, node));
