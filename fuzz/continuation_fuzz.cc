// Any bytes as a request: when it is one, and can be continued, the continuation is a request too,
// whose answer begins with what was written, and whose other messages are the same.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "api/request_reader.h"
#include "api/upstream_wire.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string written = "so \"far\"\n";
  const auto request = tare::api::ReadChatRequest(text);
  const auto body = tare::api::ContinuationBody(text, written, 7);
  if (!request || !body || !request->answer_prefix.empty()) return 0;
  const auto continued = tare::api::ReadChatRequest(*body);
  if (!continued || continued->answer_prefix != written) std::abort();
  if (continued->messages_json != request->messages_json) std::abort();
  return 0;
}
