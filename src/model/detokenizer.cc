#include "model/detokenizer.h"

namespace tare::model {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// How the well-formed UTF-8 sequences that begin with one lead byte go on (table 3-7 of the Unicode
// standard): their length, and the range of the second byte, which alone is restricted further.
struct Lead {
  unsigned length;  // 0: no sequence begins with this byte
  unsigned char low;
  unsigned char high;
};

Lead Classify(unsigned char byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte >= 0xC2 && byte <= 0xDF) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte >= 0xF1 && byte <= 0xF3) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

std::size_t AppendUtf8Lossy(std::string_view bytes, std::string& out) {
  std::size_t i = 0;
  while (i < bytes.size()) {
    const Lead lead = Classify(static_cast<unsigned char>(bytes[i]));
    if (lead.length == 1) {
      out += bytes[i++];
      continue;
    }
    std::size_t good = 1;  // bytes of this sequence that are as they should be
    while (good < lead.length && i + good < bytes.size()) {
      const auto next = static_cast<unsigned char>(bytes[i + good]);
      const unsigned char low = good == 1 ? lead.low : 0x80;
      const unsigned char high = good == 1 ? lead.high : 0xBF;
      if (next < low || next > high) break;
      ++good;
    }
    if (lead.length != 0 && good == lead.length) {
      out.append(bytes.substr(i, good));
    } else if (lead.length != 0 && i + good == bytes.size()) {
      return good;  // may still be completed
    } else {
      out.append(kReplacement);
    }
    i += good;
  }
  return 0;
}

Detokenizer::Detokenizer(const Tokenizer& tokenizer, Options options)
    : tokenizer_(&tokenizer),
      skip_special_(options.skip_special),
      strip_next_space_(tokenizer.strips_leading_space() && !options.continues) {}

std::string Detokenizer::Push(TokenId id) {
  if (skip_special_ && tokenizer_->IsSpecial(id)) return {};
  std::string_view bytes = tokenizer_->TokenBytes(id);
  if (bytes.empty()) return {};
  if (strip_next_space_ && bytes.front() == ' ') bytes.remove_prefix(1);
  strip_next_space_ = false;

  std::string out;
  pending_.append(bytes);
  const std::size_t left = AppendUtf8Lossy(pending_, out);
  pending_.erase(0, pending_.size() - left);
  return out;
}

std::string Detokenizer::Finish() {
  if (pending_.empty()) return {};
  pending_.clear();
  return std::string(kReplacement);
}

}  // namespace tare::model
