// Any bytes, cut at places the bytes themselves choose: the parser must neither crash nor differ
// from itself fed with the whole.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "net/http_response_parser.h"

namespace {

struct Recorder : tare::net::HttpResponseSink {
  std::string said;
  void OnHead(const tare::net::HttpResponseHead& head) override {
    said += std::to_string(head.status) + "|" + std::to_string(head.headers.size()) + "|";
  }
  void OnBody(std::string_view piece) override { said += piece; }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  const std::size_t step = data[0] % 32u + 1;
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  tare::net::HttpResponseParser whole, split;
  Recorder whole_said, split_said;
  const auto whole_used = whole.Feed(text, whole_said);
  bool split_failed = false;
  for (std::size_t at = 0; at < text.size() && !split.complete() && !split_failed; at += step) {
    split_failed = !split.Feed(text.substr(at, step), split_said).has_value();
  }
  if (whole_used.has_value() == split_failed || whole_said.said != split_said.said ||
      whole.complete() != split.complete()) {
    std::abort();
  }
  static_cast<void>(whole.Finish());
  return 0;
}
