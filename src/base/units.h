// Quantities as people write them in flags and configuration: "500ms", "1m30s", "16 GiB", "12/s",
// "85%". Each parser takes the whole text or fails with a message that shows the accepted forms.
// Pure functions on untrusted text; results are finite and in range of their type.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/types.h"

namespace tare {

// Decimal number, no surrounding text; "1e3" is accepted, "nan", "inf", "0x10" and "+1" are not.
Result<double> ParseNumber(std::string_view text);
Result<std::int64_t> ParseInteger(std::string_view text);

// One or more of number+unit, largest first by habit: ns, us, ms, s, m (or min), h, d. "1m30s" is
// 90 s. A bare "0" is zero; any other bare number is refused, for its unit would be a guess.
Result<Nanos> ParseDuration(std::string_view text);

// Number and unit: B, KB, MB, GB, TB (powers of 1000), KiB, MiB, GiB, TiB (powers of 1024); a bare
// number counts bytes.
Result<std::uint64_t> ParseByteSize(std::string_view text);

// Events per second: "12/s", "30/min", "1000/h", "5e8/d"; a bare number is per second.
Result<double> ParseRatePerSecond(std::string_view text);

// A share between 0 and 1: "85%" or "0.85".
Result<double> ParseFraction(std::string_view text);

// US dollars per hour: "0.12/h", "90/month" (a month is 730 h); a bare number is per hour.
Result<double> ParseUsdPerHour(std::string_view text);

// "1m 30s", "2.5 s", "340 ms", "12 µs": two or three significant digits, for people.
std::string FormatDuration(Nanos duration);

}  // namespace tare
