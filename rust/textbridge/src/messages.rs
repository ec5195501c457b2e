//! Messages as clients send them, in the shape this template understands.
//!
//! The OpenAI API sends a tool call's arguments as a JSON string, where many templates expect an
//! object (they write it with `tojson`, which would quote the string once more); and it allows
//! content as a list of parts, where many templates expect a string. What a template understands is
//! found out by rendering a probe.

use serde_json::{Value as Json, json};

const PROBE: &str = "probe-7f3a";

fn tool_calls(message: &mut Json) -> impl Iterator<Item = &mut Json> {
    message
        .get_mut("tool_calls")
        .and_then(Json::as_array_mut)
        .into_iter()
        .flatten()
        .filter_map(|call| call.pointer_mut("/function/arguments"))
}

fn object_in(arguments: &Json) -> Option<Json> {
    let parsed: Json = serde_json::from_str(arguments.as_str()?).ok()?;
    parsed.is_object().then_some(parsed)
}

fn text_of_parts(content: &Json) -> Option<String> {
    let texts: Option<Vec<&str>> = content
        .as_array()?
        .iter()
        .map(|part| match part {
            Json::String(text) => Some(text.as_str()),
            part if part.get("type").is_none_or(|t| t == "text") => part.get("text")?.as_str(),
            _ => None,
        })
        .collect();
    Some(texts?.join("\n"))
}

/// What a template does with the two forms; each is found out when it first matters.
pub struct Habits {
    pub text_arguments: bool,
    pub content_parts: bool,
}

pub fn uses_text_arguments(messages: &mut Json) -> bool {
    messages
        .as_array_mut()
        .into_iter()
        .flatten()
        .any(|message| tool_calls(message).any(|arguments| object_in(arguments).is_some()))
}

pub fn uses_content_parts(messages: &Json) -> bool {
    let mut messages = messages.as_array().into_iter().flatten();
    messages.any(|message| message.get("content").is_some_and(|c| text_of_parts(c).is_some()))
}

/// Does the template write a tool call's arguments, given as text, just as they are? Also true when
/// it makes nothing better of an object: then they stay as the client sent them.
pub fn probe_text_arguments(render: impl Fn(&Json) -> Option<String>) -> bool {
    let written = |arguments: &Json| {
        let call = json!({"id": "call00001", "type": "function",
                          "function": {"name": "probe", "arguments": arguments}});
        let user = json!({"role": "user", "content": "x"});
        let result = json!({"role": "tool", "tool_call_id": "call00001", "name": "probe",
                            "content": "x"});
        let conversation = |content: Json| {
            let assistant = json!({"role": "assistant", "content": content,
                                   "tool_calls": [call.clone()]});
            json!([user, assistant, result])
        };
        render(&conversation(json!(""))).or_else(|| render(&conversation(Json::Null)))
    };
    let text = format!("{{\"{PROBE}\": \"{PROBE}\"}}");
    if written(&json!(text)).is_some_and(|prompt| prompt.contains(&text)) {
        return true;
    }
    !written(&json!({PROBE: PROBE})).is_some_and(|prompt| prompt.contains(PROBE))
}

/// Does the template take content as a list of parts?
pub fn probe_content_parts(render: impl Fn(&Json) -> Option<String>) -> bool {
    let parts = json!([{"role": "user", "content": [{"type": "text", "text": PROBE}]}]);
    // A template made for strings fails, or writes the list as Python would print it.
    render(&parts).is_some_and(|text| {
        text.contains(PROBE) && !text.contains("'text'") && !text.contains("\"text\"")
    })
}

/// Brings the messages into the form the template understands.
pub fn adapt(messages: &mut Json, habits: &Habits) {
    for message in messages.as_array_mut().into_iter().flatten() {
        if !habits.text_arguments {
            for arguments in tool_calls(message) {
                if let Some(object) = object_in(arguments) {
                    *arguments = object;
                }
            }
        }
        if !habits.content_parts {
            if let Some(content) = message.get_mut("content") {
                if let Some(text) = text_of_parts(content) {
                    *content = Json::String(text);
                }
            }
        }
    }
}
