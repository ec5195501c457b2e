#include "model/chat_template.h"

#include "model/text_bridge.h"

namespace tare::model {

void ChatTemplate::Deleter::operator()(tb_template* handle) const { tb_template_free(handle); }

Result<ChatTemplate> ChatTemplate::Parse(std::string_view source, std::string_view constants_json) {
  BridgeBuffer error;
  tb_template* handle = nullptr;
  if (auto status =
          tb_template_parse(ToSlice(source), ToSlice(constants_json), &handle, &error.value)) {
    return BridgeFail(status, error, ErrorKind::kCorrupt, "chat template");
  }
  ChatTemplate result;
  result.handle_.reset(handle);
  return result;
}

Result<std::string> ChatTemplate::Render(const ChatInput& input, const Tokenizer* guard) const {
  const auto now = std::chrono::floor<std::chrono::seconds>(input.now);
  const tb_chat chat = {
      .messages = ToSlice(input.messages_json),
      .tools = ToSlice(input.tools_json),
      .extra = ToSlice(input.extra_json),
      .now = now.time_since_epoch().count(),
      .add_generation_prompt = input.add_generation_prompt,
  };
  BridgeBuffer text;
  BridgeBuffer error;
  if (auto status = tb_template_render(handle_.get(), guard == nullptr ? nullptr : guard->handle(),
                                       &chat, &text.value, &error.value)) {
    return BridgeFail(status, error, ErrorKind::kInvalidArgument,
                      status == TB_RAISED ? "the model's chat template refuses the messages"
                                          : "the messages cannot be put into the chat template");
  }
  return std::string(text.view());
}

}  // namespace tare::model
