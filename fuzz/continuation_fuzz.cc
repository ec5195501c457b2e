// Any bytes as a request: when it is one, and can be continued, the continuation is a request too,
// whose answer begins with what was written, and whose other messages or prompt are the same.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "api/request_reader.h"
#include "api/upstream_wire.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string written = "so \"far\"\n";
  const auto body = tare::api::ContinuationBody(text, written, 7);
  if (!body) return 0;
  const auto chat = tare::api::ReadChatRequest(text);
  if (chat && chat->answer_prefix.empty() && chat->sampling.min_tokens <= 7) {
    const auto continued = tare::api::ReadChatRequest(*body);
    if (!continued || continued->answer_prefix != written) std::abort();
    if (continued->messages_json != chat->messages_json) std::abort();
    if (continued->max_tokens != 7) std::abort();
  }
  const auto completion = tare::api::ReadCompletionRequest(text);
  if (completion && !completion->prompt.empty()) {
    const auto continued = tare::api::ReadCompletionRequest(*body);
    if (!continued || continued->prompt != completion->prompt + written) std::abort();
    if (continued->max_tokens != 7) std::abort();
  }
  return 0;
}
