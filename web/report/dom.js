// DOM elements, made without parsing text as HTML: names and outputs of tools are not trusted.

/**
 * Makes an element with attributes and children. `on…` attributes are listeners, `class` and
 * `data-…` are set as given, null ones are left out.
 */
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") element.style.cssText = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** The element of the page with this id. */
export function byId(id) {
  return document.getElementById(id);
}

/** Announces `text` to screen readers, without interrupting them. */
export function announce(text) {
  byId("announcer").textContent = text;
}

/** Returns a function that runs `paint` at most once a frame, however often it is called. */
export function framewise(paint) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      paint();
    });
  };
}

/** A value with listeners: `get()`, `set(value)`, `watch(listener)`. */
export function watched(value) {
  const listeners = [];
  return {
    get: () => value,
    set(next) {
      if (next === value) return;
      value = next;
      for (const listener of listeners) listener(value);
    },
    watch: (listener) => listeners.push(listener),
  };
}
