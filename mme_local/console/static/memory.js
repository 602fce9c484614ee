// An instance's memory as cells on a canvas: every cell is an equal share of the budget, a model fills as many as it takes.
// Thousands of models share cells; what changes lights up for a moment and fades.

const PITCH = 10;
const GAP = 2;
const FADE_MS = 900;

const still = matchMedia("(prefers-reduced-motion: reduce)");

export class MemoryMap {
  /**
   * @param {HTMLCanvasElement} canvas
   * @param {(cells: MemoryMap) => void} wake asks for a frame
   */
  constructor(canvas, wake) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.wake = wake;
    this.budget = 1;
    this.models = new Map();
    this.cells = [];
    this.columns = 0;
    this.selected = null;
    this.lit = new Map();
  }

  get size() {
    return this.models.size;
  }

  /** Everything anew: the budget and all models, as [name, bytes, slot]. */
  reset(budget, models) {
    this.budget = Math.max(1, budget);
    this.models = new Map(models.map(([name, size, slot]) => [name, { size, slot, places: [] }]));
    this.selected = this.models.has(this.selected) ? this.selected : null;
    this.lit.clear();
    this.layout();
  }

  /** Fit the canvas, and place all models again. */
  layout() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const scale = devicePixelRatio || 1;
    if (!width || !height) return;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(height * scale);
    this.context.setTransform(scale, 0, 0, scale, 0, 0);
    this.columns = Math.max(1, Math.floor((width + GAP) / PITCH));
    this.rows = Math.max(1, Math.floor((height + GAP) / PITCH));
    this.pitch = (width + GAP) / this.columns;
    this.share = this.budget / (this.columns * this.rows);
    this.cells = Array.from({ length: this.columns * this.rows }, () => ({ free: this.share, models: [] }));
    this.first = 0;
    for (const [name, model] of this.models) this.place(name, model);
    this.wake(this);
  }

  add(name, size, slot) {
    if (this.models.has(name)) this.remove(name, false);
    const model = { size, slot, places: [] };
    this.models.set(name, model);
    this.place(name, model);
    this.light(model.places, null);
  }

  remove(name, fades = true) {
    const model = this.models.get(name);
    if (!model) return;
    this.models.delete(name);
    for (const [index, size] of model.places) {
      const cell = this.cells[index];
      cell.free += size;
      cell.models = cell.models.filter(([other]) => other !== name);
      this.first = Math.min(this.first, index);
    }
    if (fades) this.light(model.places, model.slot);
    if (this.selected === name) this.selected = null;
  }

  /** Where a model goes best: into the smallest gap that takes it in one piece, else to the first free cell. */
  gap(size, least) {
    let [best, room] = [this.first, Infinity];
    let [start, sum] = [null, 0];
    for (let index = this.first; index <= this.cells.length; index += 1) {
      const free = this.cells[index]?.free ?? 0;
      const whole = free > this.share - least;
      if (start !== null && !whole) {
        if (sum + free >= size && sum < room) [best, room] = [start, sum];
        [start, sum] = [null, 0];
      }
      if (free > least) {
        start ??= index;
        sum += free;
      }
    }
    return best;
  }

  place(name, model) {
    let missing = model.size;
    const least = this.share * 0.001;
    model.places = [];
    const start = this.gap(missing, least);
    for (let index = start; missing > least && index < this.cells.length; index += 1) {
      const cell = this.cells[index];
      if (cell.free <= least) continue;
      const taken = Math.min(cell.free, missing);
      cell.free -= taken;
      cell.models.push([name, taken]);
      model.places.push([index, taken]);
      missing -= taken;
    }
    for (let index = this.first; missing > least && index < this.cells.length; index += 1) {
      const cell = this.cells[index];
      if (cell.free <= least) {
        if (index === this.first) this.first += 1;
        continue;
      }
      const taken = Math.min(cell.free, missing);
      cell.free -= taken;
      cell.models.push([name, taken]);
      model.places.push([index, taken]);
      missing -= taken;
    }
  }

  light(places, gone) {
    if (!still.matches) {
      const now = performance.now();
      for (const [index] of places) this.lit.set(index, { at: now, gone });
    }
    this.wake(this);
  }

  /** Draw; whether something still fades. */
  draw(now, colours) {
    const { context: pen, pitch, columns } = this;
    const tall = PITCH - GAP;
    pen.clearRect(0, 0, this.canvas.width, this.canvas.height);
    for (let index = 0; index < this.cells.length; index += 1) {
      const cell = this.cells[index];
      const x = Math.round((index % columns) * pitch);
      const side = Math.round((index % columns + 1) * pitch) - GAP - x;
      const y = Math.floor(index / columns) * PITCH;
      const lit = this.lit.get(index);
      let glow = 0;
      if (lit) {
        glow = 1 - (now - lit.at) / FADE_MS;
        if (glow <= 0) this.lit.delete(index);
      }
      pen.globalAlpha = 1;
      pen.fillStyle = colours.cell;
      pen.fillRect(x, y, side, tall);
      if (lit && glow > 0 && lit.gone !== null && !cell.models.length) {
        pen.globalAlpha = glow * 0.75;
        pen.fillStyle = colours.warn;
        pen.fillRect(x, y, side, tall);
      }
      if (cell.models.length) this.fill(index, x, y, side, tall, colours, this.selected);
      if (lit && glow > 0 && cell.models.length) {
        pen.globalAlpha = glow * 0.5;
        pen.fillStyle = colours.flash;
        pen.fillRect(x, y, side + this.through(index), tall);
      }
    }
    pen.globalAlpha = 1;
    return this.lit.size > 0;
  }

  /** A cell's models side by side; a model that goes on in the next cell is drawn through. Many in one cell are one colour. */
  fill(index, x, y, width, height, colours, chosen) {
    const pen = this.context;
    const cell = this.cells[index];
    const wide = Math.max(1, Math.round(width * (1 - Math.max(0, cell.free) / this.share)));
    const shown = cell.models.length > 3 ? cell.models.slice(-1) : cell.models;
    const total = shown.reduce((sum, [, size]) => sum + size, 0);
    let left = x;
    shown.forEach(([name, size], number) => {
      const part = (wide * size) / total;
      const last = number === shown.length - 1;
      pen.globalAlpha = chosen === null || chosen === name ? 1 : 0.28;
      pen.fillStyle = colours.tenants[this.models.get(name).slot];
      pen.fillRect(left, y, last ? x + wide - left + this.through(index) : Math.max(1, Math.round(part) - 1), height);
      left += Math.max(2, Math.round(part));
    });
  }

  /** How far a cell's last model goes on beyond it: to the next cell of the row, if it is there too. */
  through(index) {
    const last = this.cells[index].models.at(-1)?.[0];
    return (index + 1) % this.columns && last !== undefined && this.cells[index + 1]?.models[0]?.[0] === last ? GAP : 0;
  }

  /** The models below a point of the canvas. */
  at(x, y) {
    const column = Math.floor(x / this.pitch);
    const index = Math.floor(y / PITCH) * this.columns + column;
    return column < this.columns && this.cells[index] ? this.cells[index].models.map(([name]) => name) : [];
  }

  /** Select the next model, or the one before; its name. */
  step(by) {
    const names = [...this.models.keys()];
    if (!names.length) return null;
    const from = this.selected === null ? (by > 0 ? -1 : 0) : names.indexOf(this.selected);
    this.select(names[(from + by + names.length) % names.length]);
    return this.selected;
  }

  select(name) {
    if (this.selected !== name) {
      this.selected = name;
      this.wake(this);
    }
  }

  /** Where a model is, in pixels from the left. */
  left(name) {
    const place = this.models.get(name)?.places[0];
    return place ? (place[0] % this.columns) * this.pitch : 0;
  }
}
