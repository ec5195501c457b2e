#include "kernels/isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <atomic>
#include <cstdlib>
#include <mutex>

#include "base/log.h"
#include "kernels/kernel_table.h"

namespace tare::kernels {
namespace {

constexpr Isa kAll[] = {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAmx};

#if defined(__x86_64__)
bool HasF16Conversion() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned kF16c = 1u << 29;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & kF16c) != 0;
}

bool HasAmx() {
  // CPUID leaf 7: tile architecture, INT8 and BF16 products. Not every compiler in use knows these
  // names for __builtin_cpu_supports.
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24, kInt8 = 1u << 25;
  return (edx & (kBf16 | kTile | kInt8)) == (kBf16 | kTile | kInt8);
}

// Linux hands out the 8 KiB tile state only to processes that ask (Documentation/arch/x86/xstate).
// The answer holds for every thread of the process.
bool MayUseTiles() {
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;               // XFEATURE_XTILEDATA
  static const bool granted = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  static std::once_flag warned;
  if (!granted) {
    std::call_once(warned, [] {
      LogWarn("the kernel refuses this process the AMX tiles; AVX-512 is used instead");
    });
  }
  return granted;
}
#endif

const KernelTable& TableOf(Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::kScalar:
      return kScalarKernels;
    case Isa::kAvx2:
      return kAvx2Kernels;
    case Isa::kAvx512:
      return kAvx512Kernels;
    case Isa::kAmx:
      return kAmxKernels;
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
    case Isa::kAmx:
      return "amx";
  }
  return "?";
}

bool IsSupported(Isa isa) {
  if (isa == Isa::kScalar) return true;
#if defined(__x86_64__)
  const bool avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && HasF16Conversion();
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni") &&
                      __builtin_cpu_supports("avx512bf16");
  switch (isa) {
    case Isa::kScalar:
      return true;
    case Isa::kAvx2:
      return avx2;
    case Isa::kAvx512:
      return avx512;
    case Isa::kAmx:
      return avx512 && HasAmx() && MayUseTiles();
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

namespace {

Result<Isa> FindIsa(std::string_view name) {
  if (name.empty() || name == "auto") return SupportedIsas().back();
  for (Isa isa : kAll) {
    if (name != ToString(isa)) continue;
    if (!IsSupported(isa)) {
      return Fail(ErrorKind::kUnsupported,
                  "instruction set '{}' was asked for (--isa or TARE_ISA), but this machine lacks "
                  "it; the best it has is '{}', which is used when none is named",
                  name, ToString(SupportedIsas().back()));
    }
    return isa;
  }
  return Fail(ErrorKind::kInvalidArgument,
              "unknown instruction set '{}' (--isa or TARE_ISA); use auto, scalar, avx2, avx512 "
              "or amx",
              name);
}

}  // namespace

Result<Isa> SelectIsa(std::string_view name) {
  TARE_TRY(const Isa isa, FindIsa(name));
  Use(isa);
  return isa;
}

Status CheckIsaEnvironment() {
  const char* wanted = std::getenv("TARE_ISA");
  if (wanted == nullptr) return {};
  TARE_RETURN_IF_ERROR(FindIsa(wanted));
  return {};
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
