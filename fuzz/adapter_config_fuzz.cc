// Feeds arbitrary bytes to the reader of adapter_config.json.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "model/lora_config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto read =
      tare::model::ParseLoraConfig({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!read) return 0;
  volatile double sink = read->ScaleOf("model.layers.1.self_attn.q_proj");
  (void)sink;
  return 0;
}
