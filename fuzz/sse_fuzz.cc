// Any bytes, cut at places the bytes themselves choose: the parser must neither crash nor differ
// from itself fed with the whole.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "net/sse_parser.h"

namespace {

struct Recorder : tare::net::SseSink {
  std::string said;
  void OnEvent(const tare::net::SseEvent& event) override {
    said.append(event.type)
        .append("|")
        .append(event.data)
        .append("|")
        .append(event.id)
        .append("\n");
  }
  void OnComment(std::string_view text) override { said.append("#").append(text).append("\n"); }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  const std::size_t step = data[0] % 32u + 1;
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  tare::net::SseParser whole, split;
  Recorder whole_said, split_said;
  const bool whole_ok = whole.Feed(text, whole_said).has_value();
  bool split_ok = true;
  for (std::size_t at = 0; at < text.size(); at += step) {
    split_ok = split.Feed(text.substr(at, step), split_said).has_value();
  }
  if (whole_ok != split_ok || whole_said.said != split_said.said ||
      whole.mid_event() != split.mid_event()) {
    std::abort();
  }
  return 0;
}
