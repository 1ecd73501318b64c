// What a script finds beside ordinary JavaScript: `Data`, a function for each tool, `print`, arrays of data that know their bounds.
//
// Runs once, before the script, in the script's own realm. `host` holds the functions of the Rust side, which checks all it
// is given: a script that tampers with JavaScript's own objects can only spoil its own workflow. Everything used after the
// script has started is taken hold of here first.
(function (host, tools, sets) {
  "use strict";
  const { Array, Error, Number, Object, Proxy, RangeError, RegExp, String, TypeError } = globalThis;
  const { isArray } = Array;
  const { defineProperty, freeze, keys } = Object;
  const { isInteger } = Number;

  // --- errors ---

  // An error that speaks for itself, so that no "TypeError:" is put before it.
  function fail(message, { hint, line, column } = {}, Kind = TypeError) {
    const error = new Kind(message);
    defineProperty(error, "told", { value: freeze({ hint, line, column }) });
    throw error;
  }

  // What the host answers, or its refusal as an exception.
  function answer(reply) {
    if (reply !== undefined && !isArray(reply)) {
      fail(reply.message, reply, Error);
    }
    return reply;
  }

  function shown(value) {
    if (typeof value === "string") {
      return `the text "${value.length > 40 ? value.slice(0, 40) + "..." : value}"`;
    }
    if (typeof value === "number" || typeof value === "boolean" || value === undefined || value === null) {
      return String(value);
    }
    return idOf(value) >= 0 ? `the data element \`${host.name(idOf(value))}\`` : `a value of type ${typeof value}`;
  }

  // --- data elements ---

  // A single member. Its id is out of the script's reach.
  class Member {
    #id;
    constructor(id) {
      this.#id = id;
      freeze(this);
    }
    toString() {
      return host.name(this.#id);
    }
    static idOf(value) {
      return typeof value === "object" && value !== null && #id in value ? value.#id : -1;
    }
  }
  const { idOf } = Member;
  freeze(Member.prototype);

  // Asked of an array of data, gives its first id and its count; the script cannot get hold of this key.
  const SPAN = Symbol("span");
  const INDEX = /^-?\d+(\.\d+)?$/;
  const isIndex = INDEX.test.bind(INDEX);

  // An array of data: behaves like a JavaScript array of members, or of arrays, that cannot be changed. It is a proxy so that an
  // index out of bounds is an error at its place, and so that members are made when they are asked for.
  function arrayOf(first, shape, name) {
    const length = shape[0];
    const inner = shape.slice(1);
    const step = inner.reduce((product, count) => product * count, 1);
    const made = [];
    const span = freeze([first, length * step]);
    const target = [];
    target.length = length;

    function member(index) {
      const known = made[index];
      if (known !== undefined) {
        return known;
      }
      const id = first + index * step;
      return (made[index] = inner.length === 0 ? new Member(id) : arrayOf(id, inner, `${name}[${index}]`));
    }

    function outOfBounds(key) {
      const bounds = length === 1 ? "only index 0" : `indices 0 to ${length - 1}`;
      fail(`index ${key} of \`${name}\` is out of bounds: it has ${bounds}`, {}, RangeError);
    }

    function unchangeable() {
      fail(`\`${name}\` is an array of data: its members cannot be changed`, { hint: `copy it first: ${name}.slice()` });
    }

    return new Proxy(target, {
      get(_, key) {
        if (typeof key === "symbol") {
          return key === SPAN ? span : target[key];
        }
        const index = +key;
        if (index >= 0 && index < length && String(index) === key && isInteger(index)) {
          return member(index);
        }
        return isIndex(key) ? outOfBounds(key) : target[key];
      },
      has: (_, key) => (typeof key === "string" && isIndex(key) ? +key >= 0 && +key < length : key in target),
      getOwnPropertyDescriptor(_, key) {
        if (typeof key === "string" && isIndex(key) && +key >= 0 && +key < length) {
          return { value: member(+key), writable: false, enumerable: true, configurable: true };
        }
        return Object.getOwnPropertyDescriptor(target, key);
      },
      ownKeys: () => [...keys(Array.from({ length })), "length"],
      set: unchangeable,
      defineProperty: unchangeable,
      deleteProperty: unchangeable,
      preventExtensions: unchangeable,
      setPrototypeOf: unchangeable,
    });
  }

  // What the script gets for an element: a member, or an array.
  function element([first, ...shape], name) {
    return shape.length === 0 ? new Member(first) : arrayOf(first, shape, name);
  }

  function checkName(verb, name) {
    if (typeof name !== "string" || name === "") {
      fail(`Data.${verb} needs the name of a data element, not ${shown(name)}`, { hint: `Data.${verb}("Train")` });
    }
  }

  function checkCount(name, count) {
    if (typeof count !== "number" || !isInteger(count) || count < 1) {
      fail(`the length of \`${name}\` is a whole number from 1, not ${shown(count)}`);
    }
  }

  const Data = freeze({
    get(name, ...rest) {
      if (name instanceof RegExp) {
        return matching(name, rest);
      }
      checkName("get", name);
      if (rest.length > 0) {
        checkCount(name, rest[0]);
      }
      return element(answer(host.get(name, rest[0] ?? 0)), name);
    },
    define(name, ...rest) {
      checkName("define", name);
      const shape = rest.length === 0 ? [] : isArray(rest[0]) ? [...rest[0]] : [rest[0]];
      if (rest.length > 0 && shape.length === 0) {
        fail(`the shape of \`${name}\` has no dimension`, { hint: `Data.define("${name}", [3, 4])` });
      }
      shape.forEach((count) => checkCount(name, count));
      return element(answer(host.define(name, shape)), name);
    },
  });

  // `Data.get(/.../)`, with an optional count.
  function matching(expression, rest) {
    const name = String(expression);
    const plain = new RegExp(expression.source, expression.flags.replace(/[gy]/g, ""));
    const found = [];
    host.paths().forEach((path, index) => plain.test(path) && found.push(index));
    if (rest.length > 0) {
      checkCount(name, rest[0]);
      if (found.length !== rest[0]) {
        fail(`${name} needs ${rest[0]} files and matches ${found.length}`);
      }
    }
    return element(answer(host.matching(name, found)), name);
  }

  // --- tool calls ---

  // So deep may arrays be nested in arrays: deeper ones hold themselves.
  const NESTED_MAX = 16;

  // Adds the members of an array of any nesting to `ids`; answers what is wrong, if anything is.
  function flatten(array, ids, path, depth) {
    if (depth > NESTED_MAX) {
      return `an array in ${path.replace(/(\[\d+\])+$/, "")} is nested more than ${NESTED_MAX} times`;
    }
    for (let index = 0; index < array.length; index += 1) {
      const item = array[index];
      const id = idOf(item);
      let wrong;
      if (id >= 0) {
        ids.push(id);
      } else if (isArray(item)) {
        wrong = flatten(item, ids, `${path}[${index}]`, depth + 1);
      } else {
        wrong = `item ${index} of ${path} is ${shown(item)}, not a data element`;
      }
      if (wrong !== undefined) {
        return wrong;
      }
    }
    return undefined;
  }

  // Adds a parameter to `out` as the host takes it: name, kind, and two values that depend on the kind.
  function encode(tool, name, value, out) {
    const id = idOf(value);
    if (id >= 0) {
      out.push(name, "one", id, 0);
    } else if (isArray(value)) {
      const span = value[SPAN];
      if (span !== undefined) {
        out.push(name, "run", span[0], span[1]);
        return;
      }
      const ids = [];
      const wrong = flatten(value, ids, `parameter \`${name}\` of \`${tool}\``, 1);
      out.push(name, ...(wrong === undefined ? ["list", ids, 0] : ["wrong", wrong, undefined]));
    } else if (typeof value === "string" || typeof value === "number" || typeof value === "boolean") {
      out.push(name, "value", value, 0);
    } else {
      out.push(name, "wrong", `parameter \`${name}\` of \`${tool}\` is ${shown(value)}`, undefined);
    }
  }

  function call(index, tool, params) {
    const { stack } = new Error();
    const out = [];
    const named = typeof params[0] === "object" && params[0] !== null && !isArray(params[0]) && idOf(params[0]) < 0;
    if (params.length === 1 && named) {
      for (const name of keys(params[0])) {
        encode(tool, name, params[0][name], out);
      }
    } else {
      const given = params.length === 1 ? `, not ${shown(params[0])}` : "";
      const message = `\`${tool}\` is called with one object of named parameters${given}`;
      out.push("", "wrong", message, `${tool}({parameter: data})`);
    }
    answer(host.call(index, out, stack));
  }

  // --- the global names ---

  function global(name, value) {
    defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
  }

  tools.forEach((name, index) => global(name, { [name]: (...params) => call(index, name, params) }[name]));
  global("Data", Data);
  const print = (...values) => host.log(values.map((value) => String(value)).join(" "));
  global("print", print);
  global("console", freeze({ log: print, info: print, warn: print, error: print, debug: print }));

  // A script gives the same workflow each time: it has no clock, and its chance begins alike (xorshift, 32 bits).
  let chance = 0x9e3779b9;
  Math.random = () => {
    chance ^= chance << 13;
    chance ^= chance >>> 17;
    chance ^= chance << 5;
    return (chance >>> 0) / 4294967296;
  };
  for (const name of ["Date", "performance"]) {
    const get = () => fail(`a script has no \`${name}\`: it gives the same workflow each time`);
    defineProperty(globalThis, name, { get, set: (value) => global(name, value), configurable: true, enumerable: false });
  }

  // `--set`: the name has its value before the script starts, and the first value that the script gives it is let fall.
  sets.forEach(([name, value]) => {
    const settle = () =>
      defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: true });
    defineProperty(globalThis, name, { get: () => value, set: settle, configurable: true, enumerable: true });
  });

});
