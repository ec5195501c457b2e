#include "net/sse_parser.h"

#include <cstring>

namespace tare::net {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

const char* Find(const char* from, const char* end, char what) {
  const void* at = std::memchr(from, what, static_cast<std::size_t>(end - from));
  return at == nullptr ? end : static_cast<const char*>(at);
}

}  // namespace

void SseParser::Reset() { *this = SseParser(); }

bool SseParser::mid_event() const { return !line_.empty() || has_data_ || !type_.empty(); }

Status SseParser::Feed(std::string_view bytes, SseSink& sink) {
  const char* at = bytes.data();
  const char* const end = at + bytes.size();
  while (at != end && !broken_) {
    if (skip_lf_) {
      skip_lf_ = false;
      if (*at == '\n') {
        ++at;
        continue;
      }
    }
    // A line ends at the first LF or CR. JSON holds no raw CR, so the second search, over one
    // line only, finds nothing but the CR of a CRLF.
    const char* const newline = Find(at, end, '\n');
    const char* const stop = Find(at, newline, '\r');
    const std::string_view piece(at, static_cast<std::size_t>(stop - at));
    if (line_.size() + data_.size() + piece.size() > kMaxEventBytes) {
      broken_ = true;
      break;
    }
    if (stop == end) {
      line_.append(piece);
      break;
    }
    if (line_.empty()) {
      OnLine(piece, sink);
    } else {
      line_.append(piece);
      // The line lives in line_, which the next one overwrites: what it says must be kept now.
      OnLine(line_, sink);
      KeepView();
      line_.clear();
    }
    at = stop + 1;
    skip_lf_ = *stop == '\r';
  }
  KeepView();
  if (broken_) {
    return Fail(ErrorKind::kCorrupt, "event stream: an event is longer than {} bytes",
                kMaxEventBytes);
  }
  return {};
}

void SseParser::OnLine(std::string_view line, SseSink& sink) {
  if (at_start_) {
    at_start_ = false;
    if (line.substr(0, kByteOrderMark.size()) == kByteOrderMark) {
      line.remove_prefix(kByteOrderMark.size());
    }
  }
  if (line.empty()) {
    Dispatch(sink);
    return;
  }
  if (line.front() == ':') {
    line.remove_prefix(1);
    if (!line.empty() && line.front() == ' ') line.remove_prefix(1);
    sink.OnComment(line);
    return;
  }
  const char* const colon = Find(line.data(), line.data() + line.size(), ':');
  const std::string_view name(line.data(), static_cast<std::size_t>(colon - line.data()));
  std::string_view value = line.substr(name.size());
  if (!value.empty()) value.remove_prefix(1);
  if (!value.empty() && value.front() == ' ') value.remove_prefix(1);
  OnField(name, value);
}

void SseParser::OnField(std::string_view name, std::string_view value) {
  if (name == "data") {
    if (!has_data_) {
      has_data_ = true;
      data_is_view_ = true;
      view_ = value;
      return;
    }
    KeepView();
    data_ += '\n';
    data_.append(value);
  } else if (name == "event") {
    type_.assign(value);
  } else if (name == "id") {
    if (value.find('\0') == std::string_view::npos) id_.assign(value);
  }
  // "retry" concerns reconnecting, which nobody does here; other names are ignored by the rules.
}

void SseParser::KeepView() {
  if (!data_is_view_) return;
  data_.assign(view_);
  data_is_view_ = false;
  view_ = {};
}

void SseParser::Dispatch(SseSink& sink) {
  if (has_data_) {
    const std::string_view data = data_is_view_ ? view_ : std::string_view(data_);
    // An event of empty data is none by the rules.
    if (!data.empty()) sink.OnEvent({type_, data, id_});
  }
  has_data_ = false;
  data_is_view_ = false;
  view_ = {};
  data_.clear();
  type_.clear();
}

}  // namespace tare::net
