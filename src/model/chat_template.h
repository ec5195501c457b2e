// Chat templates: the Jinja program a checkpoint carries that turns messages into its prompt.
// minijinja runs it (rust/textbridge) with Python's string methods, JSON as Python writes it, and
// the environment Hugging Face gives its templates (trim_blocks, lstrip_blocks, loop controls,
// raise_exception, strftime_now, the generation tag).
//
// A template is a program from outside: its steps, its output and its recursion are limited.
// Thread safety: immutable; Render may be called from many threads at once.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "model/tokenizer.h"

struct tb_template;

namespace tare::model {

struct ChatInput {
  std::string_view messages_json;  // an array of {"role", "content", …}
  std::string_view tools_json;     // an array, or empty: the template sees tools = none
  std::string_view extra_json;  // an object of further variables (chat_template_kwargs), or empty
  bool add_generation_prompt = true;
  std::chrono::system_clock::time_point now;  // what strftime_now sees, as UTC
};

class ChatTemplate {
 public:
  // `constants_json` is an object of trusted variables: bos_token, eos_token and the like.
  static Result<ChatTemplate> Parse(std::string_view source,
                                    std::string_view constants_json = "{}");

  // The prompt. With a tokenizer, names of its control tokens within the input are marked (see
  // tokenizer.h); encode the result with Specials::kGuarded. Without one nothing is marked.
  // kInvalidArgument carries what the template said by raise_exception ("roles must alternate").
  Result<std::string> Render(const ChatInput& input, const Tokenizer* guard = nullptr) const;

  ChatTemplate(ChatTemplate&&) noexcept = default;
  ChatTemplate& operator=(ChatTemplate&&) noexcept = default;

 private:
  struct Deleter {
    void operator()(tb_template* handle) const;
  };
  ChatTemplate() = default;
  std::unique_ptr<tb_template, Deleter> handle_;
};

}  // namespace tare::model
