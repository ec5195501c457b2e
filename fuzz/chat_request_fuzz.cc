// Feeds arbitrary bytes to every reader of request bodies.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "api/request_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  (void)tare::api::ReadChatRequest(body);
  (void)tare::api::ReadCompletionRequest(body);
  (void)tare::api::ReadTokenizeRequest(body);
  (void)tare::api::ReadDetokenizeRequest(body);
  (void)tare::api::ReadLoadAdapter(body);
  (void)tare::api::ReadUnloadAdapter(body);
  return 0;
}
