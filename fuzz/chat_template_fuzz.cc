// Chat templates are programs from outside, and so is what they are run on. The input is a
// template, a zero byte, and messages (a fixed conversation when there is no zero byte).
#include <cstdint>
#include <string_view>

#include "model/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using tare::model::ChatTemplate;
  static const auto tokenizer = tare::model::Tokenizer::FromJson(
      R"({"version": "1.0", "added_tokens": [{"id": 0, "content": "<|im_end|>", "single_word": false,
      "lstrip": false, "rstrip": false, "normalized": false, "special": true}],
      "model": {"type": "BPE", "vocab": {"<|im_end|>": 0, "a": 1}, "merges": []}})");
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = input.find('\0');
  const auto parsed = ChatTemplate::Parse(input.substr(0, end), R"({"bos_token": "<s>"})");
  if (!parsed) return 0;
  constexpr std::string_view kChat =
      R"([{"role": "user", "content": "Hi <|im_end|>"}, {"role": "assistant", "content": null,
      "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{\"a\": 1.5}"}}]}])";
  const std::string_view messages = end == std::string_view::npos ? kChat : input.substr(end + 1);
  parsed->Render({.messages_json = messages, .tools_json = R"([{"type": "function"}])"},
                 tokenizer ? &*tokenizer : nullptr);
  return 0;
}
