// The global names of a script beside ordinary JavaScript: `Data`, a function for each tool,
// `print`, and arrays of data that check their bounds.
//
// Runs once, before the script, in the script's own realm. `host` holds the functions of the Rust
// side, which check all their arguments: a script that tampers with JavaScript's own objects can
// only spoil its own workflow. Everything used after the script has started is saved here first,
// methods as functions whose first argument is the receiver. The prelude's own lists have no
// prototype, and nothing is spread or iterated, because a script may replace the functions that
// this would call.
(function (host, tools, overrides) {
  "use strict";
  const { Array, Error, Number, Object, Proxy, RangeError, RegExp, String, Symbol, TypeError } = globalThis;
  const { isArray } = Array;
  const { defineProperty, freeze, getOwnPropertyDescriptor, keys, setPrototypeOf } = Object;
  const { isInteger } = Number;
  const { bind, call: calling } = Function.prototype;
  const method = bind.bind(calling);
  const exec = method(RegExp.prototype.exec);
  const sourceOf = method(getOwnPropertyDescriptor(RegExp.prototype, "source").get);
  const flagsOf = method(getOwnPropertyDescriptor(RegExp.prototype, "flags").get);
  const isPrototypeOf = method(Object.prototype.isPrototypeOf);
  const slice = method(String.prototype.slice);
  const lastIndexOf = method(String.prototype.lastIndexOf);
  const RegExpPrototype = RegExp.prototype;

  // Makes an empty list that changes of `Array.prototype` by a script do not affect.
  function list() {
    return setPrototypeOf([], null);
  }

  function add(items, item) {
    items[items.length] = item;
  }

  // Copies the items of an array of the script.
  function copied(array) {
    const items = list();
    for (let index = 0; index < array.length; index += 1) {
      add(items, array[index]);
    }
    return items;
  }

  // --- errors ---

  // Throws an error whose message is complete, so that no "TypeError:" is put before it.
  function fail(message, details = {}, Kind = TypeError) {
    const error = new Kind(message);
    const value = freeze({ __proto__: null, hint: details.hint, line: details.line, column: details.column });
    defineProperty(error, "hostDetails", { __proto__: null, value });
    throw error;
  }

  // Returns the host's reply, or throws its problem as an exception.
  function answer(reply) {
    if (reply !== undefined && !isArray(reply)) {
      fail(reply.message, reply, Error);
    }
    return reply;
  }

  function shown(value) {
    if (typeof value === "string") {
      return `the text "${value.length > 40 ? slice(value, 0, 40) + "..." : value}"`;
    }
    if (typeof value === "number" || typeof value === "boolean" || value === undefined || value === null) {
      return String(value);
    }
    return idOf(value) >= 0 ? `the data element \`${host.name(idOf(value))}\`` : `a value of type ${typeof value}`;
  }

  // --- data elements ---

  // A single member. The script cannot reach its id.
  class Member {
    #id;
    constructor(id) {
      this.#id = id;
      freeze(this);
    }
    // The name of its file, without directories and extension.
    get name() {
      return host.stem(this.#id);
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

  // A property of an array of data: its first id and its count. A script that learns this key can
  // only pass values that the host checks.
  const SPAN = Symbol("span");
  const INDEX = /^-?\d+(\.\d+)?$/;
  const isIndex = (key) => exec(INDEX, key) !== null;

  // Makes an array of data: it behaves like an immutable JavaScript array of members, or of arrays.
  // It is a proxy so that an index out of bounds throws at its position, and so that members are
  // made only when they are accessed. `called` is its `.name`; `rows` are the names of the arrays
  // in it, if they have names of their own.
  function arrayOf(first, shape, name, called, rows) {
    const length = shape[0];
    const inner = list();
    let step = 1;
    for (let at = 1; at < shape.length; at += 1) {
      add(inner, shape[at]);
      step *= shape[at];
    }
    const made = list();
    const span = freeze([first, length * step]);
    const target = [];
    target.length = length;

    function member(index) {
      const known = made[index];
      if (known !== undefined) {
        return known;
      }
      const id = first + index * step;
      const row = rows === undefined ? `${called}_${index}` : rows[index];
      return (made[index] = inner.length === 0 ? new Member(id) : arrayOf(id, inner, `${name}[${index}]`, row));
    }

    function outOfBounds(key) {
      const bounds = length === 1 ? "only index 0" : `indices 0 to ${length - 1}`;
      fail(`index ${key} of \`${name}\` is out of bounds: it has ${bounds}`, {}, RangeError);
    }

    function unchangeable() {
      fail(`\`${name}\` is an array of data: its members cannot be changed`, { hint: `copy it first: ${name}.slice()` });
    }

    return new Proxy(target, {
      __proto__: null,
      get(_, key) {
        if (typeof key === "symbol") {
          return key === SPAN ? span : target[key];
        }
        const index = +key;
        if (index >= 0 && index < length && String(index) === key && isInteger(index)) {
          return member(index);
        }
        if (key === "name") {
          return called;
        }
        return isIndex(key) ? outOfBounds(key) : target[key];
      },
      has: (_, key) => (typeof key === "string" && isIndex(key) ? +key >= 0 && +key < length : key === "name" || key in target),
      getOwnPropertyDescriptor(_, key) {
        if (typeof key === "string" && isIndex(key) && +key >= 0 && +key < length) {
          return { __proto__: null, value: member(+key), writable: false, enumerable: true, configurable: true };
        }
        return getOwnPropertyDescriptor(target, key);
      },
      ownKeys() {
        const all = list();
        for (let index = 0; index < length; index += 1) {
          add(all, String(index));
        }
        add(all, "length");
        return all;
      },
      set: unchangeable,
      defineProperty: unchangeable,
      deleteProperty: unchangeable,
      preventExtensions: unchangeable,
      setPrototypeOf: unchangeable,
    });
  }

  // The value for an element that the host describes by its first id and its shape: a member, or an
  // array.
  function element(reply, name, called, rows) {
    if (reply.length === 1) {
      return new Member(reply[0]);
    }
    const shape = list();
    for (let at = 1; at < reply.length; at += 1) {
      add(shape, reply[at]);
    }
    return arrayOf(reply[0], shape, name, called ?? name, rows);
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

  const isRegExp = (value) => typeof value === "object" && value !== null && isPrototypeOf(RegExpPrototype, value);

  const Data = freeze({
    get(name, ...rest) {
      if (isRegExp(name)) {
        return matching(name, rest);
      }
      checkName("get", name);
      if (rest.length > 0 && rest[0] === "all") {
        return element(answer(host.all(name)), name);
      }
      if (rest.length > 0) {
        if (typeof rest[0] === "string") {
          fail(`the length of \`${name}\` is a whole number or "all", not ${shown(rest[0])}`);
        }
        checkCount(name, rest[0]);
      }
      return element(answer(host.get(name, rest.length > 0 ? rest[0] : 0)), name);
    },
    pairs(expression) {
      if (!isRegExp(expression)) {
        fail(`Data.pairs needs a regular expression, not ${shown(expression)}`, { hint: PAIRS_HINT });
      }
      return pairs(expression);
    },
    define(name, ...rest) {
      checkName("define", name);
      const shape = rest.length === 0 ? list() : copied(isArray(rest[0]) ? rest[0] : [rest[0]]);
      if (rest.length > 0 && shape.length === 0) {
        fail(`the shape of \`${name}\` has no dimension`, { hint: `Data.define("${name}", [3, 4])` });
      }
      for (let at = 0; at < shape.length; at += 1) {
        checkCount(name, shape[at]);
      }
      return element(answer(host.define(name, shape)), name);
    },
  });

  // A copy of the expression without `lastIndex` state, with the flags `more`.
  function stateless(expression, more) {
    const flags = flagsOf(expression);
    let kept = "";
    for (let at = 0; at < flags.length; at += 1) {
      if (flags[at] !== "g" && flags[at] !== "y" && flags[at] !== more) {
        kept += flags[at];
      }
    }
    return new RegExp(sourceOf(expression), kept + more);
  }

  const written = (expression) => `/${sourceOf(expression)}/${flagsOf(expression)}`;

  // `Data.get(/.../)`, with an optional count.
  function matching(expression, rest) {
    const name = written(expression);
    const plain = stateless(expression, "");
    const paths = host.paths();
    const found = list();
    for (let index = 0; index < paths.length; index += 1) {
      if (exec(plain, paths[index]) !== null) {
        add(found, index);
      }
    }
    if (rest.length > 0 && rest[0] !== "all") {
      checkCount(name, rest[0]);
      if (found.length !== rest[0]) {
        fail(`${name} needs ${rest[0]} files and matches ${found.length}`);
      }
    }
    return element(answer(host.matching(name, found)), name);
  }

  const PAIRS_HINT = "such as Data.pairs(/(.*)_R([12])\\.fastq$/): the first group is the pair's name, the second tells its two files apart";

  // `Data.pairs(/.../)`: rows of two files whose paths differ only in the second group.
  function pairs(expression) {
    const name = `pairs of ${written(expression)}`;
    const plain = stateless(expression, "d");
    const paths = host.paths();
    const found = list();
    const parts = list();
    for (let index = 0; index < paths.length; index += 1) {
      const match = exec(plain, paths[index]);
      if (match !== null) {
        const place = match.length === 3 ? match.indices[2] : undefined;
        if (place === undefined || match[1] === undefined) {
          fail(`${written(expression)} needs two groups, both in every match`, { hint: PAIRS_HINT });
        }
        add(found, index);
        add(parts, slice(paths[index], 0, place[0]));
        add(parts, match[2]);
        add(parts, slice(paths[index], place[1]));
      }
    }
    const reply = answer(host.pairs(name, found, parts));
    const rows = list();
    for (let at = 0; at < reply[1]; at += 1) {
      const named = exec(plain, host.path(reply[0] + 2 * at))[1];
      add(rows, slice(named, lastIndexOf(named, "/") + 1));
    }
    return element(reply, name, name, rows);
  }

  // --- tool calls ---

  // The deepest nesting of arrays in arrays; deeper ones contain themselves.
  const NESTED_MAX = 16;

  // Adds the members of an array of any nesting to `ids`; returns an error message if there is an
  // error. `param` names the parameter.
  function flatten(array, ids, param, path, depth) {
    if (depth > NESTED_MAX) {
      return `an array in ${param} is nested more than ${NESTED_MAX} times`;
    }
    for (let index = 0; index < array.length; index += 1) {
      const item = array[index];
      const id = idOf(item);
      let wrong;
      if (id >= 0) {
        add(ids, id);
      } else if (isArray(item)) {
        wrong = flatten(item, ids, param, `${path}[${index}]`, depth + 1);
      } else {
        wrong = `item ${index} of ${param}${path} is ${shown(item)}, not a data element`;
      }
      if (wrong !== undefined) {
        return wrong;
      }
    }
    return undefined;
  }

  // Adds a parameter to `out` in the host's encoding: name, kind, and two values that depend on the
  // kind.
  function put(out, name, kind, value, more) {
    add(out, name);
    add(out, kind);
    add(out, value);
    add(out, more);
  }

  function encode(tool, name, value, out) {
    const id = idOf(value);
    if (id >= 0) {
      put(out, name, "one", id, 0);
    } else if (isArray(value)) {
      const span = value[SPAN];
      if (isArray(span)) {
        put(out, name, "run", span[0], span[1]);
        return;
      }
      const ids = list();
      const wrong = flatten(value, ids, `parameter \`${name}\` of \`${tool}\``, "", 1);
      if (wrong === undefined) {
        put(out, name, "list", ids, 0);
      } else {
        put(out, name, "wrong", wrong, undefined);
      }
    } else if (typeof value === "string" || typeof value === "number" || typeof value === "boolean") {
      put(out, name, "value", value, 0);
    } else {
      put(out, name, "wrong", `parameter \`${name}\` of \`${tool}\` is ${shown(value)}`, undefined);
    }
  }

  function call(index, tool, params) {
    const { stack } = new Error();
    const out = list();
    const given = params.length === 1 ? params[0] : undefined;
    if (typeof given === "object" && given !== null && !isArray(given) && idOf(given) < 0) {
      const names = keys(given);
      for (let at = 0; at < names.length; at += 1) {
        encode(tool, names[at], given[names[at]], out);
      }
    } else {
      const instead = params.length === 1 ? `, not ${shown(given)}` : "";
      const message = `\`${tool}\` is called with one object of named parameters${instead}`;
      put(out, "", "wrong", message, `${tool}({parameter: data})`);
    }
    answer(host.call(index, out, typeof stack === "string" ? stack : ""));
  }

  // --- the global names ---

  function global(name, value) {
    defineProperty(globalThis, name, { __proto__: null, value, writable: true, configurable: true, enumerable: false });
  }

  tools.forEach((name, index) => global(name, { [name]: (...params) => call(index, name, params) }[name]));
  global("Data", Data);
  const print = (...values) => {
    let line = "";
    for (let at = 0; at < values.length; at += 1) {
      line += (at === 0 ? "" : " ") + String(values[at]);
    }
    host.log(line);
  };
  global("print", print);
  global("console", freeze({ log: print, info: print, warn: print, error: print, debug: print }));

  // A script gives the same workflow each time, so it has no clock, and its random numbers start
  // from a fixed seed (xorshift, 32 bits).
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

  // `--set`: the name has its value before the script starts, and the first value that the script
  // assigns is ignored.
  overrides.forEach(([name, value]) => {
    const settle = () =>
      defineProperty(globalThis, name, { __proto__: null, value, writable: true, configurable: true, enumerable: true });
    defineProperty(globalThis, name, { get: () => value, set: settle, configurable: true, enumerable: true });
  });

});
