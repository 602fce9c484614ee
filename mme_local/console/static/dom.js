// Elements without markup in strings: what the cloud says is text, never HTML.

export const find = (id) => document.getElementById(id);

/** An element; children are nodes, texts or lists of them, a last plain object holds attributes. */
export function element(tag, ...given) {
  const node = document.createElement(tag);
  for (const part of given.flat()) {
    if (part !== null && typeof part === "object" && !(part instanceof Node)) {
      for (const [name, value] of Object.entries(part)) node.setAttribute(name, value);
    } else if (part !== "" && part !== null && part !== undefined) node.append(part);
  }
  return node;
}

/** Replace the children, if they say anything new. */
export function fill(node, ...children) {
  const wanted = children.filter((child) => child !== "");
  const next = document.createElement("div");
  next.append(...wanted);
  if (node.innerHTML !== next.innerHTML) node.replaceChildren(...next.childNodes);
}
