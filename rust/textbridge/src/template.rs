//! Chat templates: minijinja in the environment Hugging Face gives its templates.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{LazyLock, OnceLock};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{Environment, Error, ErrorKind};
use regex::Regex;
use serde_json::Value as Json;

use crate::ffi::{Buffer, Failure, Fault, Outcome, Slice, discard, enter};
use crate::guard::{Guard, MARK};
use crate::messages::{
    Habits, adapt, probe_content_parts, probe_text_arguments, uses_content_parts,
    uses_text_arguments,
};
use crate::python::{indent, is_iterable, strftime, tojson};
use crate::tokenizer::Tokenizer;

/// The name of the one template of an environment.
const NAME: &str = "chat template";

/// Begins the detail of an error that `raise_exception` made.
const RAISED: &str = "\u{FDD0}raised:";

/// Steps a rendering may take, before what is granted for its input: the largest known templates
/// need some tens of thousands. One step pays for 64 bytes of text, so this also bounds memory.
const BASE_FUEL: u64 = 2_000_000;

pub struct Template {
    environment: Environment<'static>,
    constants: BTreeMap<String, Value>,
    text_arguments: OnceLock<bool>,
    content_parts: OnceLock<bool>,
}

/// What one rendering sees; see include/textbridge.h.
#[repr(C)]
pub struct Chat {
    messages: Slice,
    tools: Slice,
    extra: Slice,
    now: i64,
    add_generation_prompt: u8,
}

/// Python-only constructs with an equal in minijinja's language: the generation tag (which only
/// marks spans for training) and the two list methods that templates call on a namespace's list.
fn rewrite(source: &str) -> String {
    static RULES: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
        let rules = [
            (r"\{%([-+]?)\s*generation\s*([-+]?)%\}", "{%$1 if true $2%}"),
            (r"\{%([-+]?)\s*endgeneration\s*([-+]?)%\}", "{%$1 endif $2%}"),
            (
                r"\{%([-+]?)\s*set\s+\w+\s*=\s*(\w+\.\w+)\.append\((.*?)\)\s*([-+]?)%\}",
                "{%$1 set $2 = $2 + [$3] $4%}",
            ),
            (
                r"\{%([-+]?)\s*set\s+(\w+)\s*=\s*(\w+\.\w+)\.pop\(0\)\s*([-+]?)%\}",
                "{%$1 set $2 = $3[0] -%}{%- set $3 = $3[1:] $4%}",
            ),
        ];
        let compile = |pattern| Regex::new(pattern).expect("a constant expression");
        rules.into_iter().map(|(pattern, with)| (compile(pattern), with)).collect()
    });
    let mut text = source.to_string();
    for (rule, with) in RULES.iter() {
        if let Cow::Owned(changed) = rule.replace_all(&text, *with) {
            text = changed;
        }
    }
    text
}

fn raise_exception(message: &str) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, format!("{RAISED}{message}")))
}

fn from_json(text: &str) -> Result<Value, Error> {
    let json: Json = serde_json::from_str(text)
        .map_err(|e| Error::new(ErrorKind::InvalidOperation, format!("from_json: {e}")))?;
    Ok(to_value(&json, None))
}

fn to_value(json: &Json, guard: Option<&Guard>) -> Value {
    let text = |text: &str| match guard {
        Some(guard) => guard.mark(text),
        None => text.to_string(),
    };
    match json {
        Json::Null => Value::from(()),
        Json::Bool(value) => Value::from(*value),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(value), _) => Value::from(value),
            (_, Some(value)) => Value::from(value),
            _ => Value::from(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(value) => Value::from(text(value)),
        Json::Array(items) => items.iter().map(|item| to_value(item, guard)).collect(),
        Json::Object(map) => {
            Value::from_pairs(map.iter().map(|(key, value)| (text(key), to_value(value, guard))))
        }
    }
}

fn parse_json(text: &[u8], what: &str) -> Outcome<Json> {
    serde_json::from_slice(text).map_err(|e| Failure::input(format!("{what}: {e}")))
}

fn failure(error: Error) -> Failure {
    let detail = error.detail().unwrap_or_default().replace(MARK, "");
    if let Some(message) = detail.strip_prefix(RAISED) {
        return Failure { fault: Fault::Raised, message: message.to_string() };
    }
    let line = error.line().map_or(String::new(), |line| format!(" (line {line})"));
    let kind = error.kind();
    let message =
        if detail.is_empty() { format!("{kind}{line}") } else { format!("{kind}: {detail}{line}") };
    Failure::input(message)
}

fn parse(source: &[u8], constants: &[u8]) -> Outcome<Template> {
    let source = std::str::from_utf8(source).map_err(Failure::input)?;
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.map_err(failure)?);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_filter("tojson", tojson);
    environment.add_filter("indent", indent);
    environment.add_filter("from_json", from_json);
    environment.add_test("iterable", is_iterable);
    environment.add_function("raise_exception", raise_exception);
    environment.add_template_owned(NAME, rewrite(source)).map_err(failure)?;

    let Json::Object(constants) = parse_json(constants, "template constants")? else {
        return Err(Failure::input("template constants: not a JSON object"));
    };
    let constants = constants.iter().map(|(k, v)| (k.clone(), to_value(v, None))).collect();
    Ok(Template {
        environment,
        constants,
        text_arguments: OnceLock::new(),
        content_parts: OnceLock::new(),
    })
}

/// The variables of one rendering, before guarding.
struct Scene {
    messages: Json,
    tools: Json,
    extra: Json,
    now: i64,
    add_generation_prompt: bool,
}

impl Template {
    fn run(&self, scene: &Scene, guard: Option<&Guard>, fuel: u64) -> Result<String, Error> {
        let mut context: BTreeMap<String, Value> = BTreeMap::new();
        context.insert("documents".to_string(), Value::from(()));
        for (key, value) in scene.extra.as_object().into_iter().flatten() {
            context.insert(key.clone(), to_value(value, guard));
        }
        context.extend(self.constants.iter().map(|(key, value)| (key.clone(), value.clone())));
        context.insert("messages".to_string(), to_value(&scene.messages, guard));
        context.insert("tools".to_string(), to_value(&scene.tools, guard));
        context
            .insert("add_generation_prompt".to_string(), Value::from(scene.add_generation_prompt));
        let now = scene.now;
        let clock = move |format: &str| strftime(format, now);
        context.insert("strftime_now".to_string(), Value::from_function(clock));

        let mut environment = self.environment.clone();
        environment.set_fuel(Some(fuel));
        environment.get_template(NAME)?.render(Value::from_pairs(context))
    }

    /// Renders a probe conversation; None when the template refuses it.
    fn probe(&self, messages: &Json) -> Option<String> {
        let scene = Scene {
            messages: messages.clone(),
            tools: Json::Null,
            extra: Json::Null,
            now: 0,
            add_generation_prompt: false,
        };
        self.run(&scene, None, BASE_FUEL).ok()
    }

    fn render(&self, chat: &Chat, guard: Option<&Guard>) -> Outcome<String> {
        let (messages, tools, extra) =
            unsafe { (chat.messages.bytes(), chat.tools.bytes(), chat.extra.bytes()) };
        let mut scene = Scene {
            messages: parse_json(messages, "messages")?,
            tools: if tools.is_empty() { Json::Null } else { parse_json(tools, "tools")? },
            extra: if extra.is_empty() {
                Json::Null
            } else {
                parse_json(extra, "template variables")?
            },
            now: chat.now,
            add_generation_prompt: chat.add_generation_prompt != 0,
        };
        if !scene.messages.is_array() {
            return Err(Failure::input("messages: not a JSON array"));
        }
        if !(scene.tools.is_null() || scene.tools.is_array()) {
            return Err(Failure::input("tools: not a JSON array"));
        }
        if !(scene.extra.is_null() || scene.extra.is_object()) {
            return Err(Failure::input("template variables: not a JSON object"));
        }

        let habits = Habits {
            text_arguments: !uses_text_arguments(&mut scene.messages)
                || *self.text_arguments.get_or_init(|| probe_text_arguments(|m| self.probe(m))),
            content_parts: !uses_content_parts(&scene.messages)
                || *self.content_parts.get_or_init(|| probe_content_parts(|m| self.probe(m))),
        };
        adapt(&mut scene.messages, &habits);
        let fuel = BASE_FUEL + (messages.len() + tools.len() + extra.len()) as u64;
        self.run(&scene, guard, fuel).map_err(failure)
    }
}

/// # Safety
/// Pointers are valid as include/textbridge.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_template_parse(
    source: Slice,
    constants: Slice,
    out: *mut *mut Template,
    error: *mut Buffer,
) -> i32 {
    unsafe {
        enter(
            error,
            || parse(source.bytes(), constants.bytes()),
            |template| out.write(Box::into_raw(Box::new(template))),
        )
    }
}

/// # Safety
/// `template` came from this library and is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_template_free(template: *mut Template) {
    discard(template);
}

/// # Safety
/// Pointers are valid as include/textbridge.h says; `guard` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_template_render(
    template: *const Template,
    guard: *const Tokenizer,
    chat: *const Chat,
    out: *mut Buffer,
    error: *mut Buffer,
) -> i32 {
    unsafe {
        enter(
            error,
            || (*template).render(&*chat, guard.as_ref().map(|tokenizer| &tokenizer.guard)),
            |text| out.write(Buffer::from(text.into_bytes())),
        )
    }
}
