#include "kernels/isa.h"

#include <atomic>
#include <cstdlib>
#include <mutex>

#include "base/log.h"
#include "kernels/kernel_table.h"

namespace tare::kernels {
namespace {

constexpr Isa kAll[] = {Isa::kScalar, Isa::kAvx2, Isa::kAvx512};

const KernelTable& TableOf(Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::kScalar:
      return kScalarKernels;
    case Isa::kAvx2:
      return kAvx2Kernels;
    case Isa::kAvx512:
      return kAvx512Kernels;
  }
#endif
  return kScalarKernels;
}

struct Selection {
  std::atomic<const KernelTable*> table{nullptr};
  std::atomic<Isa> isa{Isa::kScalar};
};

Selection& TheSelection() {
  static Selection selection;
  return selection;
}

void Use(Isa isa) {
  TheSelection().isa.store(isa);
  TheSelection().table.store(&TableOf(isa));
}

void UseDefault() {
  const char* wanted = std::getenv("TARE_ISA");
  const Result<Isa> chosen = SelectIsa(wanted == nullptr ? "" : wanted);
  if (chosen) return;
  LogError("{}", chosen.error().message);
  Use(SupportedIsas().back());
}

}  // namespace

const char* ToString(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return "scalar";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
  }
  return "?";
}

bool IsSupported(Isa isa) {
  if (isa == Isa::kScalar) return true;
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  switch (isa) {
    case Isa::kScalar:
      return true;
    case Isa::kAvx2:
      return avx2;
    case Isa::kAvx512:
      return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16");
  }
#endif
  return false;
}

std::vector<Isa> SupportedIsas() {
  std::vector<Isa> supported;
  for (Isa isa : kAll) {
    if (IsSupported(isa)) supported.push_back(isa);
  }
  return supported;
}

Result<Isa> SelectIsa(std::string_view name) {
  if (name.empty() || name == "auto") {
    const Isa best = SupportedIsas().back();
    Use(best);
    return best;
  }
  for (Isa isa : kAll) {
    if (name != ToString(isa)) continue;
    if (!IsSupported(isa)) {
      return Fail(ErrorKind::kUnsupported,
                  "instruction set '{}' was asked for, but this processor lacks it; leave TARE_ISA "
                  "unset to use '{}'",
                  name, ToString(SupportedIsas().back()));
    }
    Use(isa);
    return isa;
  }
  return Fail(ErrorKind::kInvalidArgument,
              "unknown instruction set '{}'; use auto, scalar, avx2 or avx512", name);
}

Isa CurrentIsa() {
  Kernels();
  return TheSelection().isa.load();
}

const KernelTable& Kernels() {
  const KernelTable* table = TheSelection().table.load(std::memory_order_acquire);
  if (table != nullptr) return *table;
  static std::once_flag once;
  std::call_once(once, [] {
    if (TheSelection().table.load() == nullptr) {
      UseDefault();
      LogInfo("kernels use the instruction set '{}'", ToString(TheSelection().isa.load()));
    }
  });
  return *TheSelection().table.load();
}

}  // namespace tare::kernels
