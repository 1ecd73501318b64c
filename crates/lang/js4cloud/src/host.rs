//! The functions that the prelude calls: a thin layer between JavaScript values and the builder.

use crate::builder::{Argument, ArgumentValue, Builder};
use crate::exception;
use base::Problem;
use flow::{ConfigValue, DataId};
use rquickjs::function::Function;
use rquickjs::{Array, Coerced, Ctx, Error, IntoJs, Object, Result, Value};
use std::cell::RefCell;
use std::rc::Rc;

/// Calls the prelude, which defines the global names.
pub(crate) fn start<'js>(ctx: &Ctx<'js>, builder: &Rc<RefCell<Builder>>, prelude: &Function<'js>) -> Result<()> {
    let tools = builder.borrow().tool_names();
    let overrides = Array::new(ctx.clone())?;
    for (index, (name, value)) in builder.borrow().overrides().iter().enumerate() {
        let pair = Array::new(ctx.clone())?;
        pair.set(0, name.as_str())?;
        pair.set(1, to_js(ctx, value)?)?;
        overrides.set(index, pair)?;
    }
    prelude.call((functions(ctx, builder)?, tools, overrides))
}

fn functions<'js>(ctx: &Ctx<'js>, builder: &Rc<RefCell<Builder>>) -> Result<Object<'js>> {
    let host = Object::new(ctx.clone())?;
    let of = Rc::clone(builder);
    host.set(
        "get",
        Function::new(ctx.clone(), move |name: String, count: f64| HostResult(of.borrow_mut().get(&name, count)))?,
    )?;
    let of = Rc::clone(builder);
    host.set("all", Function::new(ctx.clone(), move |name: String| HostResult(of.borrow_mut().all(&name)))?)?;
    let of = Rc::clone(builder);
    let pairs = move |name: String, found: Vec<usize>, parts: Vec<String>| {
        HostResult(of.borrow_mut().pairs(&name, &found, parts))
    };
    host.set("pairs", Function::new(ctx.clone(), pairs)?)?;
    let of = Rc::clone(builder);
    let define = move |name: String, shape: Vec<f64>| HostResult(of.borrow_mut().define(&name, &shape));
    host.set("define", Function::new(ctx.clone(), define)?)?;
    let of = Rc::clone(builder);
    let matching = move |name: String, found: Vec<usize>| HostResult(of.borrow_mut().matching(&name, &found));
    host.set("matching", Function::new(ctx.clone(), matching)?)?;
    let of = Rc::clone(builder);
    host.set("paths", Function::new(ctx.clone(), move || of.borrow().paths())?)?;
    let of = Rc::clone(builder);
    host.set("name", Function::new(ctx.clone(), move |id: u32| of.borrow().name(DataId(id)))?)?;
    let of = Rc::clone(builder);
    host.set("stem", Function::new(ctx.clone(), move |id: u32| of.borrow().stem(DataId(id)))?)?;
    let of = Rc::clone(builder);
    host.set("path", Function::new(ctx.clone(), move |id: u32| of.borrow().path(DataId(id)))?)?;
    let of = Rc::clone(builder);
    host.set("log", Function::new(ctx.clone(), move |line: String| of.borrow_mut().log(&line))?)?;
    let of = Rc::clone(builder);
    let call = move |tool: u32, given: Array<'js>, stack: Option<Coerced<String>>| -> Result<HostResult> {
        let at = stack.and_then(|stack| exception::script_position(&stack.0));
        // Reading the arguments may run code of the script, which may call the host again, so
        // nothing is borrowed meanwhile.
        let arguments = arguments(&given)?;
        let result = of.borrow_mut().call(tool, &arguments, at);
        Ok(HostResult(result.map(|()| Vec::new())))
    };
    host.set("call", Function::new(ctx.clone(), call)?)?;
    Ok(host)
}

/// A reply to the prelude: numbers, or a problem that the prelude throws at the script's call.
struct HostResult(std::result::Result<Vec<u32>, Problem>);

impl<'js> IntoJs<'js> for HostResult {
    fn into_js(self, ctx: &Ctx<'js>) -> Result<Value<'js>> {
        match self.0 {
            Ok(numbers) => numbers.into_js(ctx),
            Err(problem) => {
                let refusal = Object::new(ctx.clone())?;
                refusal.set("message", problem.message)?;
                refusal.set("hint", problem.hint)?;
                if let Some(location) = problem.location {
                    refusal.set("line", location.line)?;
                    refusal.set("column", location.column)?;
                }
                refusal.into_js(ctx)
            }
        }
    }
}

/// Decodes the parameters of a call, as encoded by the prelude's `encode`.
fn arguments(given: &Array<'_>) -> Result<Vec<Argument>> {
    const FIELDS: usize = 4;
    let mut arguments = Vec::with_capacity(given.len() / FIELDS);
    for at in (0..given.len()).step_by(FIELDS) {
        let name: String = given.get(at)?;
        let kind: String = given.get(at + 1)?;
        let value = match kind.as_str() {
            "one" => ArgumentValue::One(DataId(given.get(at + 2)?)),
            "run" => ArgumentValue::Run { first: DataId(given.get(at + 2)?), count: given.get(at + 3)? },
            "list" => ArgumentValue::List(given.get::<Vec<u32>>(at + 2)?.into_iter().map(DataId).collect()),
            "value" => ArgumentValue::Value(value(&given.get(at + 2)?)?),
            _ => ArgumentValue::Invalid(Problem {
                hint: given.get(at + 3)?,
                ..Problem::new(given.get::<String>(at + 2)?)
            }),
        };
        arguments.push(Argument { name, value });
    }
    Ok(arguments)
}

/// The plain value that a script passed; whole numbers become integers.
fn value(value: &Value<'_>) -> Result<ConfigValue> {
    if let Some(value) = value.as_bool() {
        return Ok(ConfigValue::Boolean(value));
    }
    if let Some(text) = value.as_string() {
        return Ok(ConfigValue::String(text.to_string()?));
    }
    let number = value.as_number().ok_or(Error::Unknown)?;
    Ok(to_integer(number).map_or(ConfigValue::Number(number), ConfigValue::Integer))
}

/// `number` as an integer, if it is a whole number within the exact range of a double.
fn to_integer(number: f64) -> Option<i64> {
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    #[expect(clippy::cast_possible_truncation, reason = "a whole number within the exact range")]
    (number.fract() == 0.0 && number.abs() <= EXACT_MAX).then_some(number as i64)
}

fn to_js<'js>(ctx: &Ctx<'js>, value: &ConfigValue) -> Result<Value<'js>> {
    match value {
        ConfigValue::Boolean(value) => value.into_js(ctx),
        #[expect(clippy::cast_precision_loss, reason = "JavaScript has no other numbers")]
        ConfigValue::Integer(value) => (*value as f64).into_js(ctx),
        ConfigValue::Number(value) => value.into_js(ctx),
        ConfigValue::String(value) => value.as_str().into_js(ctx),
        ConfigValue::Strings(values) => values.clone().into_js(ctx),
    }
}
