// Small lines of the last two minutes.

const WINDOW_SECONDS = 120;

/** Draw values, oldest first, as a filled line; null is a gap. */
export function sparkline(canvas, values, colour, least) {
  const { clientWidth: width, clientHeight: height } = canvas;
  if (!width) return;
  const scale = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  const top = Math.max(least, ...values.map((value) => value ?? 0));
  const step = width / (WINDOW_SECONDS - 1);
  const points = values
    .map((value, index) => (value === null ? null : [index * step, height - 2 - (value / top) * (height - 8)]))
    .filter((point) => point !== null);
  if (points.length < 2) return;
  pen.beginPath();
  points.forEach(([x, y], index) => (index ? pen.lineTo(x, y) : pen.moveTo(x, y)));
  pen.strokeStyle = colour;
  pen.lineWidth = 1.5;
  pen.lineJoin = "round";
  pen.stroke();
  pen.lineTo(points.at(-1)[0], height);
  pen.lineTo(points[0][0], height);
  pen.globalAlpha = 0.12;
  pen.fillStyle = colour;
  pen.fill();
  pen.globalAlpha = 1;
}

/** The counts of every second of the last two minutes. */
export class Seconds {
  constructor() {
    this.bySecond = new Map();
  }

  take(seconds) {
    for (const entry of seconds) this.bySecond.set(entry.second, entry);
    const newest = Math.max(...this.bySecond.keys());
    for (const second of this.bySecond.keys()) {
      if (second < newest - 2 * WINDOW_SECONDS) this.bySecond.delete(second);
    }
  }

  clear() {
    this.bySecond.clear();
  }

  /** One member a second up to `now`, oldest first; the current second is not over and not in it. */
  values(now, member) {
    const last = Math.floor(now) - 1;
    return Array.from({ length: WINDOW_SECONDS }, (_, index) => this.bySecond.get(last - WINDOW_SECONDS + 1 + index)?.[member] ?? 0);
  }

  sum(now, member, span) {
    return this.values(now, member)
      .slice(-span)
      .reduce((sum, value) => sum + value, 0);
  }
}
