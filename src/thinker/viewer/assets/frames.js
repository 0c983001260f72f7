// Draws states: boards, pictures and vectors.
const pictures = new Map();
function picture(source) {
  if (!pictures.has(source)) {
    const image = new Image();
    image.src = source;
    pictures.set(source, image);
  }
  return pictures.get(source);
}
const sprites = view.kind === "board" && view.sprites ? picture(view.sprites) : null;
const ratio = view.kind === "vector" ? 1.5 : view.width / view.height;
document.documentElement.style.setProperty("--ratio", String(ratio));

// Pictures as large as most stages of this recording allow on this screen; the same size in all of them.
const shapes = episodes.flatMap((one) => one.stages.map((each) => rolloutsOf(each))).filter((rows) => rows.length);
const many = shapes.map((rows) => rows.length).sort((a, b) => a - b)[Math.floor(0.8 * shapes.length)] || 1;
const long = shapes.flat().reduce((most, row) => Math.max(most, row.steps.length), 1);
const room = $("rollouts").getBoundingClientRect();
const thumb = Math.round(Math.max(62, Math.min(120, room.height / many - 42, ((room.width - 140) / long - 8) / ratio)));
document.documentElement.style.setProperty("--thumb", `${thumb}px`);
document.documentElement.style.setProperty("--thumb-width", `${Math.round(thumb * ratio)}px`);

const range = { low: [], high: [] };
if (view.kind === "vector") {
  for (const frame of frames)
    frame.forEach((x, i) => {
      range.low[i] = Math.min(range.low[i] ?? 0, x);
      range.high[i] = Math.max(range.high[i] ?? 0, x);
    });
}

function whenLoaded(image, draw) {
  if (image.complete && image.naturalWidth) draw();
  else image.addEventListener("load", draw, { once: true });
}

// Draws frame number `index`; squares that differ from frame number `truth` are marked.
function paint(canvas, index, width, height, truth = null) {
  const scale = Math.min(window.devicePixelRatio || 1, 2);
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.dataset.frame = String(index);
  const context = canvas.getContext("2d");
  const frame = frames[index];
  if (view.kind === "image") {
    const image = picture(frame);
    whenLoaded(image, () => {
      if (canvas.dataset.frame !== String(index)) return;
      context.imageSmoothingEnabled = false;
      context.drawImage(image, 0, 0, canvas.width, canvas.height);
    });
  } else if (view.kind === "vector") paintVector(context, frame, truth === null ? null : frames[truth]);
  else if (sprites)
    whenLoaded(sprites, () => {
      if (canvas.dataset.frame === String(index)) paintBoard(context, frame, truth === null ? null : frames[truth]);
    });
  else paintBoard(context, frame, truth === null ? null : frames[truth]);
}

function paintBoard(context, frame, truth) {
  const { width, height } = context.canvas;
  context.imageSmoothingEnabled = width < 32 * view.width;
  for (let y = 0; y < view.height; y++)
    for (let x = 0; x < view.width; x++) {
      const code = frame[y * view.width + x];
      const left = Math.round((x * width) / view.width),
        right = Math.round(((x + 1) * width) / view.width);
      const top = Math.round((y * height) / view.height),
        bottom = Math.round(((y + 1) * height) / view.height);
      const tile = parseInt(code, 36);
      if (Number.isNaN(tile)) {
        context.fillStyle = "#d63bd0";
        context.fillRect(left, top, right - left, bottom - top);
      } else if (sprites) {
        const side = sprites.naturalHeight;
        context.drawImage(sprites, tile * side, 0, side, side, left, top, right - left, bottom - top);
      } else {
        context.fillStyle = palette[tile % palette.length];
        context.fillRect(left, top, right - left, bottom - top);
      }
      if (truth !== null && truth[y * view.width + x] !== code) {
        context.lineWidth = Math.max(2, width / 60);
        context.strokeStyle = "#e02020";
        context.fillStyle = "rgba(224,32,32,.35)";
        context.fillRect(left, top, right - left, bottom - top);
        context.strokeRect(left + 1, top + 1, right - left - 2, bottom - top - 2);
      }
    }
}

function paintVector(context, frame, truth) {
  const { width, height } = context.canvas;
  const style = getComputedStyle(document.documentElement);
  const each = width / frame.length,
    pad = height * 0.06;
  frame.forEach((x, i) => {
    const low = range.low[i],
      span = range.high[i] - low || 1;
    const place = (v) => height - pad - ((v - low) / span) * (height - 2 * pad);
    const top = Math.min(place(x), place(0)),
      bottom = Math.max(place(x), place(0));
    context.fillStyle = style.getPropertyValue("--accent");
    context.fillRect(i * each + each * 0.12, top, each * 0.76, Math.max(bottom - top, 2));
    context.fillStyle = style.getPropertyValue("--quiet");
    context.fillRect(i * each, place(0) - 0.5, each, 1);
    if (truth !== null) {
      context.fillStyle = style.getPropertyValue("--bad");
      context.fillRect(i * each, place(truth[i]) - 1.5, each, 3);
    }
  });
}
