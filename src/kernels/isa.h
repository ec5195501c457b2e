// Which instruction set the kernels use: the best one the machine has, or the one TARE_ISA names.
//
// Thread safety: SelectIsa may be called from any thread before the first kernel runs; afterwards
// the choice should stay (results of float kernels differ between sets in their last bits).
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"

namespace tare::kernels {

// In rising order of preference.
enum class Isa { kScalar, kAvx2, kAvx512, kAmx };

const char* ToString(Isa isa);

// True when this machine (processor and operating system) can run `isa`.
bool IsSupported(Isa isa);
std::vector<Isa> SupportedIsas();

// Chooses the set named `name` ("scalar", "avx2", "avx512", "amx"), or the best one when `name` is
// empty or "auto". Fails when the name is unknown or the machine lacks it.
Result<Isa> SelectIsa(std::string_view name);

// Fails when the environment variable TARE_ISA names a set that is unknown or that the machine
// lacks. Whoever loads a model asks first, so that such a value ends the program with its reason.
Status CheckIsaEnvironment();

// The set in use. The first call chooses by TARE_ISA; a value that cannot be honoured, which nobody
// checked, is logged as an error and the best set is used.
Isa CurrentIsa();

}  // namespace tare::kernels
