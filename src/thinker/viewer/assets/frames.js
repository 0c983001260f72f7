// Draws states: boards and pictures on canvases, vectors as bars (vectors.js).
const pictures = new Map();
function picture(source) {
  if (!pictures.has(source)) {
    const image = new Image();
    image.src = source;
    pictures.set(source, image);
  }
  return pictures.get(source);
}
function whenLoaded(image, draw) {
  if (image.complete && image.naturalWidth) draw();
  else image.addEventListener("load", draw, { once: true });
}

const sprites = view.kind === "board" && view.sprites ? picture(view.sprites) : null;
const ratio = view.kind === "vector" ? 1.5 : view.width / view.height; // of a state in little room
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// A state as an element: frame number `index`; where it differs from frame number `truth`, it is marked.
function drawn(index, width, height, truth = null) {
  const element = view.kind === "vector" ? vector(frames[index], height, truth === null ? null : frames[truth]) : null;
  const box = element ?? make("canvas");
  box.style.width = `${Math.round(width)}px`;
  box.style.height = `${Math.round(height)}px`;
  if (!element) paint(box, index, width, height, truth);
  return box;
}

function prepared(canvas, name, width, height) {
  const scale = Math.min(window.devicePixelRatio || 1, 2);
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.dataset.shown = name;
  return canvas.getContext("2d");
}

function paint(canvas, index, width, height, truth = null) {
  const context = prepared(canvas, `frame ${index}`, width, height);
  if (view.kind === "image") paintPicture(context, frames[index], false);
  else {
    const draw = () => paintBoard(context, frames[index], truth === null ? null : frames[truth]);
    if (sprites) whenShown(context.canvas, sprites, draw);
    else draw();
  }
}

// The environment's own picture of a real state.
function paintRendering(canvas, index, width, height) {
  paintPicture(prepared(canvas, `rendering ${index}`, width, height), renderings.pictures[index], true);
}

function paintPicture(context, source, smooth) {
  const image = picture(source);
  whenShown(context.canvas, image, () => {
    context.imageSmoothingEnabled = smooth;
    context.drawImage(image, 0, 0, context.canvas.width, context.canvas.height);
  });
}

// Draws once `image` is there, unless the canvas shows something else by then.
function whenShown(canvas, image, draw) {
  const wanted = canvas.dataset.shown;
  whenLoaded(image, () => {
    if (canvas.dataset.shown === wanted) draw();
  });
}

function paintBoard(context, frame, truth) {
  const { width, height } = context.canvas;
  const wrong = colour("--wrong");
  context.imageSmoothingEnabled = width < 32 * view.width;
  context.textAlign = "center";
  context.textBaseline = "middle";
  for (let y = 0; y < view.height; y++)
    for (let x = 0; x < view.width; x++) {
      const code = frame[y * view.width + x];
      const left = Math.round((x * width) / view.width),
        top = Math.round((y * height) / view.height);
      const across = Math.round(((x + 1) * width) / view.width) - left,
        down = Math.round(((y + 1) * height) / view.height) - top;
      const tile = parseInt(code, 36);
      if (Number.isNaN(tile)) {
        context.fillStyle = "#8d8d8d";
        context.fillRect(left, top, across, down);
        context.fillStyle = "#ffffff";
        context.font = `${Math.round(0.8 * down)}px sans-serif`;
        context.fillText("?", left + across / 2, top + down / 2);
      } else if (sprites) {
        const side = sprites.naturalHeight;
        context.drawImage(sprites, tile * side, 0, side, side, left, top, across, down);
      } else {
        context.fillStyle = palette[tile % palette.length];
        context.fillRect(left, top, across, down);
      }
      if (truth !== null && truth[y * view.width + x] !== code) {
        context.fillStyle = context.strokeStyle = wrong;
        context.globalAlpha = 0.4;
        context.fillRect(left, top, across, down);
        context.globalAlpha = 1;
        context.lineWidth = Math.max(2, width / 60);
        context.strokeRect(left + 1, top + 1, across - 2, down - 2);
      }
    }
}
