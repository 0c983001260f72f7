// Vectors as bars: a line for each number, with its name. All bars begin at one baseline; each has a scale of its own,
// the largest size that this number has in the recording.
const scale = [];
let hasNegative = false;
if (view.kind === "vector")
  for (const frame of frames)
    frame.forEach((x, i) => {
      scale[i] = Math.max(scale[i] ?? 0, Math.abs(x));
      hasNegative ||= x < 0;
    });
const baseline = hasNegative ? 0.5 : 0; // as a share of the width
const along = (x, i) => baseline + ((1 - baseline) * x) / (scale[i] || 1);
const LINE = 13; // pixels that a line with text needs

// Where `truth` is given, a mark shows the real numbers.
function vector(numbers, height, truth) {
  return height / numbers.length >= LINE ? labelledBars(numbers, truth) : plainBars(numbers, truth);
}

function labelledBars(numbers, truth) {
  const lines = numbers.map((x, i) => {
    const [low, high] = [along(x, i), baseline].sort((a, b) => a - b);
    const bar = make("i");
    bar.style.left = `${100 * low}%`;
    bar.style.width = `${100 * (high - low)}%`;
    const zero = make("b");
    zero.style.left = `${100 * baseline}%`;
    const track = make("span", "track", bar, zero);
    if (truth !== null) {
      const mark = make("u");
      mark.style.left = `${100 * along(truth[i], i)}%`;
      track.append(mark);
    }
    const line = make("div", "line", make("span", "name", view.names[i]), track, make("span", "number", short(x)));
    line.title = `${view.names[i]}: ${short(x)}${truth === null ? "" : `, actually ${short(truth[i])}`}`;
    return line;
  });
  return make("div", "vector", ...lines);
}

// Where there is no room for text: only the bars.
function plainBars(numbers, truth) {
  const bar = (from, to, i) => `M${from},${i + 0.15}H${to}V${i + 0.85}H${from}Z`;
  const box = svg("svg", { viewBox: `0 0 1 ${numbers.length}`, preserveAspectRatio: "none" });
  box.append(svg("path", { d: numbers.map((x, i) => bar(baseline, along(x, i), i)).join(""), fill: "var(--accent)" }));
  if (truth !== null) {
    const marks = truth.map((x, i) => bar(along(x, i) - 0.01, along(x, i) + 0.01, i)).join("");
    box.append(svg("path", { d: marks, fill: "var(--wrong)" }));
  }
  box.append(svg("path", { class: "zero", d: `M${baseline},0V${numbers.length}`, "vector-effect": "non-scaling-stroke" }));
  return make("div", "vector plain", box);
}
