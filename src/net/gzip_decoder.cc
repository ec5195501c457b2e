#include "net/gzip_decoder.h"

#include <zlib.h>

#include <array>
#include <climits>

#include "net/http_message.h"

namespace tare::net {

namespace {

constexpr std::size_t kPiece = 16 << 10;
constexpr int kGzipOrZlib = 15 + 32;  // the largest window; which of the two its first bytes tell

}  // namespace

struct GzipDecoder::State {
  z_stream stream{};
  bool begun = false, complete = false, empty = true;
  std::array<char, kPiece> out;

  ~State() {
    if (begun) inflateEnd(&stream);
  }
};

GzipDecoder::GzipDecoder() : state_(std::make_unique<State>()) {}
GzipDecoder::~GzipDecoder() = default;
GzipDecoder::GzipDecoder(GzipDecoder&&) noexcept = default;
GzipDecoder& GzipDecoder::operator=(GzipDecoder&&) noexcept = default;

bool GzipDecoder::Knows(std::string_view encoding) {
  return EqualsIgnoreCase(encoding, "gzip") || EqualsIgnoreCase(encoding, "x-gzip") ||
         EqualsIgnoreCase(encoding, "deflate");
}

bool GzipDecoder::complete() const { return state_->complete || state_->empty; }

Status GzipDecoder::Feed(std::string_view bytes,
                         const std::function<bool(std::string_view)>& take) {
  State& state = *state_;
  z_stream& stream = state.stream;
  if (!state.begun) {
    if (inflateInit2(&stream, kGzipOrZlib) != Z_OK) {
      return Fail(ErrorKind::kResourceExhausted, "no memory to unpack a compressed answer");
    }
    state.begun = true;
  }
  if (bytes.size() > UINT_MAX) return Fail(ErrorKind::kCorrupt, "a compressed piece is too large");
  if (!bytes.empty()) state.empty = false;
  // zlib does not write to its input, but takes it as if it might.
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  while (true) {
    if (state.complete) {
      if (stream.avail_in == 0) return {};
      // RFC 1952 2.2: another member may follow, whose contents go on where this one's end.
      if (inflateReset(&stream) != Z_OK) return Fail(ErrorKind::kCorrupt, "zlib lost its state");
      state.complete = false;
    }
    stream.next_out = reinterpret_cast<Bytef*>(state.out.data());
    stream.avail_out = static_cast<uInt>(state.out.size());
    const int result = inflate(&stream, Z_SYNC_FLUSH);
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) {
      return Fail(ErrorKind::kCorrupt, "a compressed answer cannot be unpacked: {}",
                  stream.msg != nullptr ? stream.msg : zError(result));
    }
    state.complete = result == Z_STREAM_END;
    const std::size_t count = state.out.size() - stream.avail_out;
    if (count > 0 && !take({state.out.data(), count})) return {};
    // A full piece may have more behind it; otherwise all that was given is unpacked.
    if (!state.complete && stream.avail_out > 0) return {};
  }
}

}  // namespace tare::net
