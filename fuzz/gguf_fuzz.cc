// Feeds arbitrary bytes to the GGUF reader and reads all it offers.
#include <cstddef>
#include <cstdint>

#include "model/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file =
      tare::model::GgufFile::Parse({reinterpret_cast<const std::byte*>(data), size}, "fuzz");
  if (!file) return 0;
  volatile std::size_t sink = 0;
  for (const std::string_view key : file->Keys()) {
    sink = sink + file->String(key).value_or("").size();
    sink = sink + (file->Int(key).value_or(0) != 0) + file->Float(key).has_value() +
           file->Bool(key).has_value();
    for (const auto text : file->Strings(key).value_or(std::vector<std::string_view>()))
      sink = sink + text.size();
    sink = sink + file->Ints(key).value_or(std::vector<std::int64_t>()).size() +
           file->Floats(key).value_or(std::vector<float>()).size();
  }
  for (const auto& tensor : file->tensors()) {
    const auto view = file->View(tensor);
    if (view && !view->data.empty()) sink = sink + static_cast<std::size_t>(view->data.back());
  }
  return 0;
}
