// Times the kernels on shapes of real models and holds every figure against the machine's limit.
//
// usage: kernels_bench [--threads N] [--filter TEXT] [--repeat N]
// Times are medians over repeats of the wall clock; with one thread, the least processor time of
// that thread, which other programs on the machine disturb less. TARE_ISA chooses the instruction
// set.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <random>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/isa.h"
#include "kernels/kv_pages.h"
#include "kernels/limits.h"
#include "kernels/matmul.h"

namespace tare::kernels {
namespace {

struct Options {
  int threads = 0;
  int repeats = 15;
  std::string filter;
};

bool use_thread_time = false;

double Now() {
  timespec now{};
  clock_gettime(use_thread_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

template <typename Work>
double Typical(int repeats, const Work& work) {
  work();
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    const double start = Now();
    work();
    times.push_back(Now() - start);
  }
  std::sort(times.begin(), times.end());
  return use_thread_time ? times[0] : times[times.size() / 2];
}

std::vector<float> Random(std::size_t count) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> values(-1.0f, 1.0f);
  std::vector<float> out(count);
  for (float& value : out) value = values(random);
  return out;
}

// The limit a product with `rows` rows is held against: reading the weights once, or computing.
struct Bound {
  double seconds = 0.0;
  const char* name = "";
};

Bound BoundOf(const MachineLimits& limits, WeightType type, double bytes, double operations) {
  const bool in_l3 = bytes < 0.3 * static_cast<double>(limits.cpu.l3_bytes);
  const double bandwidth = in_l3 ? limits.read_l3.all : limits.read_dram.all;
  double rate = limits.fma_f32.all;
  if (type == WeightType::kBf16 && limits.amx_bf16.all > 0) rate = limits.amx_bf16.all;
  if (type == WeightType::kInt8 || type == WeightType::kInt4) {
    rate = std::max({rate, limits.vnni_int8.all, limits.amx_int8.all});
  }
  const double read = bytes / bandwidth;
  const double compute = rate > 0 ? operations / rate : 0.0;
  if (read > compute) return {read, in_l3 ? "L3" : "DRAM"};
  return {compute, "compute"};
}

// One model's worth of layers: enough different matrices that caches hold what they would in use.
void BenchMatMul(const Options& options, const MachineLimits& limits, ThreadPool& pool,
                 const std::string& model, std::int64_t n, std::int64_t k, int copies) {
  for (const StoredType stored : {StoredType::kBf16, StoredType::kQ8_0, StoredType::kQ4_0,
                                  StoredType::kQ4_1, StoredType::kF32}) {
    const WeightType type = NaturalType(stored);
    const std::string label = fmt::format("{} {}x{} {}", model, n, k, ToString(stored));
    if (label.find(options.filter) == std::string::npos) continue;
    std::vector<std::byte> bytes(static_cast<std::size_t>(n * k / BlockElements(stored)) *
                                 static_cast<std::size_t>(BlockBytes(stored)));
    std::mt19937 random(1);
    for (auto& byte : bytes) byte = std::byte((random() & 0x3b) | 0x20);  // normal numbers
    std::vector<PackedMatrix> matrices;
    for (int copy = 0; copy < copies; ++copy) {
      auto packed = PackedMatrix::Pack(type, TensorView{stored, n, k, bytes}, pool);
      if (!packed) {
        std::fprintf(stderr, "%s\n", packed.error().message.c_str());
        std::exit(1);
      }
      matrices.push_back(std::move(*packed));
    }
    const double weight_bytes = static_cast<double>(matrices[0].bytes()) * copies;
    for (const std::int64_t rows : {1, 2, 4, 5, 8, 16, 32, 64, 128, 512}) {
      const auto x = Random(static_cast<std::size_t>(rows * k));
      std::vector<float> y(static_cast<std::size_t>(rows * n));
      Activations input;
      const double seconds =
          Typical(rows > 64 ? std::min(5, options.repeats) : options.repeats, [&] {
            for (const PackedMatrix& matrix : matrices) {
              input.Set(x.data(), rows, k);
              MatMul(matrix, input, y.data(), 0, pool);
            }
          });
      const double operations =
          2.0 * static_cast<double>(rows) * static_cast<double>(n * k) * copies;
      const Bound bound = BoundOf(limits, type, weight_bytes, operations);
      fmt::print("{:34} rows {:4}  {:9.1f} us  {:6.1f} GB/s  {:7.3f} TOP/s  {:3.0f} % of {}\n",
                 label, rows, seconds / copies * 1e6, weight_bytes / seconds * 1e-9,
                 operations / seconds * 1e-12, 100 * bound.seconds / seconds, bound.name);
      std::fflush(stdout);
    }
  }
}

void BenchAttention(const Options& options, const MachineLimits& limits, ThreadPool& pool,
                    int heads, int kv_heads, int dim) {
  for (const KvType type : {KvType::kBf16, KvType::kInt8, KvType::kF32}) {
    const char* type_name = type == KvType::kBf16 ? "BF16" : type == KvType::kInt8 ? "INT8" : "F32";
    struct Case {
      int sequences, start, rows;
    };
    for (const auto& [sequences, start, rows] :
         {Case{1, 0, 512}, Case{1, 1536, 512}, Case{1, 2047, 1}, Case{16, 511, 1},
          Case{16, 2047, 1}}) {
      const std::string label = fmt::format("attention {}/{}x{} {} seqs {} start {} rows {}", heads,
                                            kv_heads, dim, type_name, sequences, start, rows);
      if (label.find(options.filter) == std::string::npos) continue;
      const int pages_each = (start + rows + kTokensPerPage - 1) / kTokensPerPage;
      auto kv = KvPages::Create({1, kv_heads, dim, type},
                                static_cast<std::uint32_t>(pages_each * sequences));
      if (!kv) std::exit(1);
      std::vector<std::vector<PageId>> pages(static_cast<std::size_t>(sequences));
      std::vector<SequenceRows> fill, step;
      for (int s = 0; s < sequences; ++s) {
        auto& list = pages[static_cast<std::size_t>(s)];
        for (int p = 0; p < pages_each; ++p) {
          list.push_back(PageId{static_cast<std::uint32_t>(p * sequences + s)});
        }
        fill.push_back({0, start + rows, 0, list});
        step.push_back({s * rows, rows, start, list});
      }
      const auto kv_floats = Random(static_cast<std::size_t>((start + rows) * kv_heads * dim));
      kv->Write(0, fill, kv_floats.data(), kv_floats.data(), pool);
      const auto q = Random(static_cast<std::size_t>(sequences * rows * heads * dim));
      std::vector<float> out(q.size());
      const double seconds =
          Typical(rows > 1 ? std::min(5, options.repeats) : options.repeats,
                  [&] { Attention(*kv, 0, heads, 0.125f, step, q.data(), out.data(), pool); });
      const double pairs = static_cast<double>(sequences) * rows * (start + (rows + 1) / 2.0);
      const double operations = 4.0 * pairs * heads * dim;
      const double bytes = static_cast<double>(KvBytesPerToken({1, kv_heads, dim, type})) *
                           (start + rows) * sequences;
      const double limit = std::max(bytes / limits.read_l3.all,
                                    operations / std::max(limits.amx_bf16.all, limits.fma_f32.all));
      fmt::print("{:52}  {:9.1f} us  {:6.1f} GB/s  {:7.3f} TFLOP/s  {:3.0f} %\n", label,
                 seconds * 1e6, bytes / seconds * 1e-9, operations / seconds * 1e-12,
                 100 * limit / seconds);
    }
  }
}

void BenchPool(ThreadPool& pool) {
  constexpr int kJobs = 20000;
  const double seconds = Typical(5, [&] {
    for (int i = 0; i < kJobs; ++i) pool.Run([](int) {});
  });
  fmt::print("empty fork and join on {} threads: {:.2f} us\n", pool.size(), seconds / kJobs * 1e6);
}

void Print(const MachineLimits& limits) {
  fmt::print("{} (family {} model {} stepping {}), {} threads, kernels {}\n", limits.cpu.name,
             limits.cpu.family, limits.cpu.model, limits.cpu.stepping, limits.threads,
             ToString(CurrentIsa()));
  const auto line = [](const char* name, const Rate& rate, double unit, const char* unit_name) {
    fmt::print("  {:10} {:8.2f} one thread, {:8.2f} all  {}\n", name, rate.one / unit,
               rate.all / unit, unit_name);
  };
  line("FMA F32", limits.fma_f32, 1e12, "TFLOP/s");
  line("VNNI INT8", limits.vnni_int8, 1e12, "TOP/s");
  line("AMX INT8", limits.amx_int8, 1e12, "TOP/s");
  line("AMX BF16", limits.amx_bf16, 1e12, "TFLOP/s");
  line("read L2", limits.read_l2, 1e9, "GB/s");
  line("read L3", limits.read_l3, 1e9, "GB/s");
  line("read DRAM", limits.read_dram, 1e9, "GB/s");
}

int Main(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--threads") == 0) options.threads = std::atoi(argv[i + 1]);
    if (std::strcmp(argv[i], "--repeat") == 0) options.repeats = std::atoi(argv[i + 1]);
    if (std::strcmp(argv[i], "--filter") == 0) options.filter = argv[i + 1];
  }
  ThreadPool pool(options.threads);
  use_thread_time = pool.size() == 1;
  const MachineLimits limits = MeasureLimits(pool);
  Print(limits);
  BenchPool(pool);
  BenchMatMul(options, limits, pool, "SmolLM2-135M", 1536, 576, 60);
  BenchMatMul(options, limits, pool, "llama-1B", 8192, 2048, 16);
  BenchMatMul(options, limits, pool, "llama-1B", 2048, 2048, 40);
  BenchAttention(options, limits, pool, 9, 3, 64);
  BenchAttention(options, limits, pool, 32, 8, 64);
  BenchAttention(options, limits, pool, 32, 8, 128);
  return 0;
}

}  // namespace
}  // namespace tare::kernels

int main(int argc, char** argv) { return tare::kernels::Main(argc, argv); }
