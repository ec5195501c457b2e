#include "kernels/limits.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <ctime>
#include <functional>
#include <numeric>

#include "kernels/aligned_buffer.h"
#include "kernels/isa.h"
#include "kernels/probes.h"

namespace tare::kernels {
namespace {

constexpr double kSlice = 0.03;  // seconds: long against a timer tick, short for a user who waits
constexpr int kRepeats = 3;      // the best counts: interruptions only ever slow a loop down

// Processor time of the calling thread, so that other programs on the machine do not count.
double ThreadSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Units per second of `work(thread)`, which returns the units it did, called for a slice.
double RateOfThread(const std::function<std::int64_t(int thread)>& work, int thread) {
  std::int64_t done = 0;
  const double start = ThreadSeconds();
  double seconds = 0.0;
  while (seconds < kSlice) {
    done += work(thread);
    seconds = ThreadSeconds() - start;
  }
  return static_cast<double>(done) / seconds;
}

Rate RateOf(ThreadPool& pool, const std::function<std::int64_t(int thread)>& work) {
  Rate best;
  std::vector<double> rates(static_cast<std::size_t>(pool.size()));
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    best.one = std::max(best.one, RateOfThread(work, 0));
    pool.Run(
        [&](int worker) { rates[static_cast<std::size_t>(worker)] = RateOfThread(work, worker); });
    best.all = std::max(best.all, std::accumulate(rates.begin(), rates.end(), 0.0));
  }
  return best;
}

Rate ComputeRate(ThreadPool& pool, std::int64_t (*probe)(std::int64_t)) {
  constexpr std::int64_t kRounds = 20000;
  return RateOf(pool, [probe](int) { return probe(kRounds); });
}

using Reader = std::uint64_t (*)(const std::uint8_t*, std::size_t);

// Every thread reads `bytes` of its own, over and over.
Rate ReadRate(ThreadPool& pool, Reader reader, std::size_t bytes) {
  bytes = std::max<std::size_t>(bytes / 512 * 512, 512);
  std::vector<AlignedBuffer> buffers(static_cast<std::size_t>(pool.size()));
  pool.Run([&](int worker) {  // first touched by its reader, for NUMA
    AlignedBuffer& buffer = buffers[static_cast<std::size_t>(worker)];
    buffer = AlignedBuffer(bytes);
    std::memset(buffer.as<void>(), worker + 1, bytes);
  });
  std::atomic<std::uint64_t> sink{0};
  return RateOf(pool, [&](int worker) {
    const auto* data = buffers[static_cast<std::size_t>(worker)].as<const std::uint8_t>();
    sink += reader(data, bytes);
    return static_cast<std::int64_t>(bytes);
  });
}

Reader BestReader() {
#if defined(__x86_64__)
  if (IsSupported(Isa::kAvx512)) return ReadAvx512;
  if (IsSupported(Isa::kAvx2)) return ReadAvx2;
#endif
  return ReadScalar;
}

std::size_t CacheBytes(int name) {
  const long bytes = sysconf(name);
  return bytes > 0 ? static_cast<std::size_t>(bytes) : 0;
}

}  // namespace

std::uint64_t ReadScalar(const std::uint8_t* data, std::size_t bytes) {
  std::uint64_t acc[8] = {};
  for (std::size_t at = 0; at < bytes; at += sizeof acc) {
    std::uint64_t words[8];
    std::memcpy(words, data + at, sizeof words);
    for (int i = 0; i < 8; ++i) acc[i] ^= words[i];
  }
  return acc[0] ^ acc[1] ^ acc[2] ^ acc[3] ^ acc[4] ^ acc[5] ^ acc[6] ^ acc[7];
}

CpuIdentity IdentifyCpu() {
  CpuIdentity cpu;
  cpu.name = "unknown processor";
#if defined(__x86_64__)
  unsigned regs[12] = {};
  if (static_cast<unsigned>(__get_cpuid_max(0x80000000u, nullptr)) >= 0x80000004u) {
    for (unsigned i = 0; i < 3; ++i) {
      __get_cpuid(0x80000002u + i, &regs[4 * i], &regs[4 * i + 1], &regs[4 * i + 2],
                  &regs[4 * i + 3]);
    }
    char name[sizeof regs + 1] = {};
    std::memcpy(name, regs, sizeof regs);
    cpu.name = name;
    cpu.name.erase(0, cpu.name.find_first_not_of(' '));
  }
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0) {
    cpu.stepping = static_cast<int>(eax & 0xf);
    cpu.family = static_cast<int>((eax >> 8 & 0xf) + (eax >> 20 & 0xff));
    cpu.model = static_cast<int>((eax >> 4 & 0xf) | (eax >> 16 & 0xf) << 4);
  }
#endif
  for (Isa isa : SupportedIsas()) cpu.isas.emplace_back(ToString(isa));
  cpu.l2_bytes = CacheBytes(_SC_LEVEL2_CACHE_SIZE);
  cpu.l3_bytes = CacheBytes(_SC_LEVEL3_CACHE_SIZE);
  return cpu;
}

MachineLimits MeasureLimits(ThreadPool& pool) {
  MachineLimits limits;
  limits.cpu = IdentifyCpu();
  limits.threads = pool.size();
#if defined(__x86_64__)
  if (IsSupported(Isa::kAvx512)) {
    limits.fma_f32 = ComputeRate(pool, ProbeFmaAvx512);
    limits.vnni_int8 = ComputeRate(pool, ProbeVnniAvx512);
  } else if (IsSupported(Isa::kAvx2)) {
    limits.fma_f32 = ComputeRate(pool, ProbeFmaAvx2);
  }
  if (IsSupported(Isa::kAmx)) {
    limits.amx_int8 = ComputeRate(pool, ProbeInt8Amx);
    limits.amx_bf16 = ComputeRate(pool, ProbeBf16Amx);
  }
#endif
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  const auto threads = static_cast<std::size_t>(pool.size());
  const std::size_t l2 = limits.cpu.l2_bytes > 0 ? limits.cpu.l2_bytes : kMiB;
  const std::size_t l3 = limits.cpu.l3_bytes > 0 ? limits.cpu.l3_bytes : 16 * kMiB;
  limits.read_l2 = ReadRate(pool, BestReader(), l2 / 2);
  // Past L2 and well inside this pool's share of L3, of which guests of a big socket own a part.
  limits.read_l3 =
      ReadRate(pool, BestReader(), std::min(std::max(4 * l2, l3 / 8), 32 * kMiB) / threads);
  // Enough that no cache holds it, but no more than a small machine can spare.
  limits.read_dram = ReadRate(pool, BestReader(), std::min(4 * l3, 512 * kMiB) / threads);
  return limits;
}

}  // namespace tare::kernels
