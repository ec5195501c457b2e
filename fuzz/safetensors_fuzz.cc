// Feeds arbitrary bytes to the safetensors reader and touches the ends of every tensor.
#include <cstddef>
#include <cstdint>

#include "model/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file =
      tare::model::SafetensorsFile::Parse({reinterpret_cast<const std::byte*>(data), size}, "fuzz");
  if (!file) return 0;
  volatile std::size_t sink = 0;
  for (const auto& [name, tensor] : file->tensors()) {
    sink = sink + name.size() + tensor.shape.size();
    if (tensor.data.empty()) continue;
    sink = sink + static_cast<std::size_t>(tensor.data.front()) +
           static_cast<std::size_t>(tensor.data.back());
  }
  return 0;
}
