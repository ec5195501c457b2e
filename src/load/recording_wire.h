// A recording as bytes, to be merged by another process or on another machine: every request, every
// second, every histogram's buckets, least and largest value, exactly; its mean to a nanosecond.
// Compressed with zstd; both ends are the same version of Tare (the handshake checks it), the bytes
// are not a format to keep. Pure. What comes in is not trusted: lengths are checked before they are
// used.
#pragma once

#include <string>
#include <string_view>

#include "load/generator.h"

namespace tare::load {

std::string PackRecording(const LoadSource::Recording& recording);
Result<LoadSource::Recording> UnpackRecording(std::string_view bytes);

}  // namespace tare::load
