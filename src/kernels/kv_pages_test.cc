#include "kernels/kv_pages.h"

#include <gtest/gtest.h>

#include "kernels/per_isa_test.h"
#include "kernels/test_data.h"

namespace tare::kernels {
namespace {

struct Sequence {
  int start = 0;
  int num_rows = 0;
  std::vector<PageId> pages;
};

std::vector<SequenceRows> Rows(const std::vector<Sequence>& sequences) {
  std::vector<SequenceRows> rows;
  int first = 0;
  for (const Sequence& sequence : sequences) {
    rows.push_back({first, sequence.num_rows, sequence.start, sequence.pages});
    first += sequence.num_rows;
  }
  return rows;
}

std::vector<PageId> PageList(std::initializer_list<std::uint32_t> ids) {
  std::vector<PageId> pages;
  for (std::uint32_t id : ids) pages.push_back(PageId{id});
  return pages;
}

// Keys, values and queries of one sequence of `tokens` tokens.
struct Head {
  int tokens, heads, kv_heads, dim;
  std::vector<float> q, k, v;

  Head(int tokens_, int heads_, int kv_heads_, int dim_, std::uint32_t seed)
      : tokens(tokens_), heads(heads_), kv_heads(kv_heads_), dim(dim_) {
    const auto count = static_cast<std::size_t>(tokens * dim);
    q = RandomFloats(count * static_cast<std::size_t>(heads), seed);
    k = RandomFloats(count * static_cast<std::size_t>(kv_heads), seed + 1);
    v = RandomFloats(count * static_cast<std::size_t>(kv_heads), seed + 2);
  }
  const float* Q(int token) const { return q.data() + token * heads * dim; }
  const float* K(int token) const { return k.data() + token * kv_heads * dim; }
  const float* V(int token) const { return v.data() + token * kv_heads * dim; }

  // Plain softmax attention in double precision for all tokens.
  std::vector<double> Reference(float scale) const {
    std::vector<double> out(q.size(), 0.0);
    for (int row = 0; row < tokens; ++row) {
      for (int head = 0; head < heads; ++head) {
        const int kv_head = head / (heads / kv_heads);
        std::vector<double> weight(static_cast<std::size_t>(row) + 1);
        double largest = -1e300;
        for (int t = 0; t <= row; ++t) {
          double dot = 0;
          for (int d = 0; d < dim; ++d) {
            dot += double{Q(row)[head * dim + d]} * K(t)[kv_head * dim + d];
          }
          weight[static_cast<std::size_t>(t)] = dot * scale;
          largest = std::max(largest, dot * scale);
        }
        double total = 0;
        for (double& w : weight) total += w = std::exp(w - largest);
        for (int t = 0; t <= row; ++t) {
          for (int d = 0; d < dim; ++d) {
            out[static_cast<std::size_t>((row * heads + head) * dim + d)] +=
                weight[static_cast<std::size_t>(t)] / total * V(t)[kv_head * dim + d];
          }
        }
      }
    }
    return out;
  }
};

class AttentionPerIsa : public PerIsaTest {
 protected:
  // Feeds `head` in chunks of the given sizes and returns the outputs of all tokens.
  std::vector<float> Run(const Head& head, KvType type, const std::vector<int>& chunks,
                         float scale) {
    auto kv = KvPages::Create({2, head.kv_heads, head.dim, type}, 64);
    EXPECT_TRUE(kv);
    std::vector<float> out(head.q.size(), -1.0f);
    int start = 0;
    Sequence sequence;
    for (std::uint32_t i = 0; i < 40; ++i) sequence.pages.push_back(PageId{(i * 17 + 3) % 64});
    for (int chunk : chunks) {
      sequence.start = start;
      sequence.num_rows = chunk;
      const std::vector<Sequence> step = {sequence};
      const auto rows = Rows(step);
      kv->Write(1, rows, head.K(start), head.V(start), pool_);
      Attention(*kv, 1, head.heads, scale, rows, head.Q(start),
                out.data() + start * head.heads * head.dim, pool_);
      start += chunk;
    }
    return out;
  }
};

TEST_P(AttentionPerIsa, AgreesWithDoublePrecision) {
  const int shapes[][4] = {{50, 9, 3, 64}, {33, 4, 4, 80}, {70, 8, 1, 128},
                           {5, 2, 1, 20},  {17, 6, 2, 33}, {16, 16, 2, 96}};
  for (const auto& [tokens, heads, kv_heads, dim] : shapes) {
    const Head head(tokens, heads, kv_heads, dim, static_cast<std::uint32_t>(dim));
    const float scale = 1.0f / std::sqrt(static_cast<float>(dim));
    const auto expected = head.Reference(scale);
    for (KvType type : {KvType::kF32, KvType::kBf16, KvType::kInt8}) {
      const auto out = Run(head, type, {tokens}, scale);
      // |v| reaches about 4; q.k errs by 2^-9 per factor (BF16) or max|k|/254 (INT8), and the
      // exponential passes that on relative to the weights.
      const double bound = type == KvType::kF32 ? 2e-5 : type == KvType::kBf16 ? 0.04 : 0.06;
      for (std::size_t i = 0; i < out.size(); ++i) {
        ASSERT_NEAR(out[i], expected[i], bound) << dim << " type " << static_cast<int>(type);
      }
    }
  }
}

TEST_P(AttentionPerIsa, DoesNotDependOnHowASequenceIsChunked) {
  const Head head(560, 6, 2, 64, 77);  // the keys' second segment begins at 512
  std::vector<int> singles = {500};
  singles.insert(singles.end(), 60, 1);
  for (KvType type : {KvType::kF32, KvType::kBf16, KvType::kInt8}) {
    const auto whole = Run(head, type, {560}, 0.125f);
    for (const std::vector<int>& chunks :
         {std::vector<int>{16, 544}, std::vector<int>{7, 9, 100, 3, 441}, singles}) {
      const auto out = Run(head, type, chunks, 0.125f);
      ASSERT_EQ(std::memcmp(out.data(), whole.data(), out.size() * sizeof(float)), 0)
          << "type " << static_cast<int>(type) << " in " << chunks.size() << " chunks";
    }
  }
}

// Latent attention: one KV head, whose keys' leading dimensions are the values. As keys and values
// stored apart give it, in every type, across segments and chunks.
TEST_P(AttentionPerIsa, ValuesMayBePartOfTheKeys) {
  const int shapes[][4] = {{60, 3, 576, 512}, {37, 16, 48, 32}, {540, 2, 96, 40}, {20, 4, 33, 33}};
  for (const auto& [tokens, heads, dim, value_dim] : shapes) {
    const Head head(tokens, heads, 1, dim, static_cast<std::uint32_t>(dim));
    Head apart = head;
    apart.v = apart.k;
    const float scale = 1.0f / std::sqrt(static_cast<float>(dim));
    for (KvType type : {KvType::kF32, KvType::kBf16, KvType::kInt8}) {
      const auto expected = Run(apart, type, {tokens}, scale);
      auto kv = KvPages::Create({2, 1, dim, type, value_dim}, 64).value();
      std::vector<PageId> pages;
      for (std::uint32_t i = 0; i < 40; ++i) pages.push_back(PageId{(i * 17 + 3) % 64});
      std::vector<float> out(static_cast<std::size_t>(tokens * heads * value_dim), -1.0f);
      for (int start = 0, chunk = 7; start < tokens; start += chunk, chunk = 100) {
        const SequenceRows rows{0, std::min(chunk, tokens - start), start, pages};
        kv.Write(1, {&rows, 1}, head.K(start), nullptr, pool_);
        Attention(kv, 1, heads, scale, {&rows, 1}, head.Q(start),
                  out.data() + start * heads * value_dim, pool_);
      }
      for (int row = 0; row < tokens * heads; ++row) {
        for (int d = 0; d < value_dim; ++d) {
          // BF16 and INT8 products sum in the same order; the plain kernels in another.
          ASSERT_NEAR(out[static_cast<std::size_t>(row * value_dim + d)],
                      expected[static_cast<std::size_t>(row * dim + d)], 1e-5)
              << dim << " type " << static_cast<int>(type) << " row " << row << " dim " << d;
        }
      }
    }
  }
}

TEST_P(AttentionPerIsa, SequencesInOneStepDoNotTouchEachOther) {
  const Head a(20, 4, 2, 64, 1), b(37, 4, 2, 64, 2);
  for (KvType type : {KvType::kF32, KvType::kBf16, KvType::kInt8}) {
    const auto alone_a = Run(a, type, {20}, 0.125f);
    const auto alone_b = Run(b, type, {37}, 0.125f);
    auto kv = KvPages::Create({2, 2, 64, type}, 8);
    ASSERT_TRUE(kv);
    std::vector<float> q = a.q, k = a.k, v = a.v;
    q.insert(q.end(), b.q.begin(), b.q.end());
    k.insert(k.end(), b.k.begin(), b.k.end());
    v.insert(v.end(), b.v.begin(), b.v.end());
    const std::vector<Sequence> sequences = {{0, 20, PageList({5, 0})},
                                             {0, 37, PageList({1, 7, 2})}};
    const auto rows = Rows(sequences);
    std::vector<float> out(q.size());
    kv->Write(1, rows, k.data(), v.data(), pool_);
    Attention(*kv, 1, 4, 0.125f, rows, q.data(), out.data(), pool_);
    EXPECT_TRUE(std::equal(alone_a.begin(), alone_a.end(), out.begin()));
    EXPECT_TRUE(std::equal(alone_b.begin(), alone_b.end(), out.begin() + alone_a.size()));
  }
}

TEST_P(AttentionPerIsa, ReusedPagesKeepNothingOfTheirPast) {
  const Head head(5, 2, 1, 64, 4);
  for (KvType type : {KvType::kF32, KvType::kBf16, KvType::kInt8}) {
    const auto expected = Run(head, type, {5}, 0.125f);
    auto kv = KvPages::Create({2, 1, 64, type}, 1);
    ASSERT_TRUE(kv);
    const std::vector<float> broken(16 * 64, std::nanf(""));
    const std::vector<Sequence> earlier = {{0, 16, PageList({0})}};
    kv->Write(1, Rows(earlier), broken.data(), broken.data(), pool_);
    const std::vector<Sequence> now = {{0, 5, PageList({0})}};
    std::vector<float> out(head.q.size());
    kv->Write(1, Rows(now), head.k.data(), head.v.data(), pool_);
    Attention(*kv, 1, 2, 0.125f, Rows(now), head.q.data(), out.data(), pool_);
    EXPECT_EQ(out, expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, AttentionPerIsa, kEveryIsa, NameOfIsa);

TEST(KvPages, CopyAndDiscardActOnWholePages) {
  ThreadPool pool(1);
  auto kv = KvPages::Create({3, 2, 64, KvType::kBf16}, 4);
  ASSERT_TRUE(kv);
  const auto k = RandomFloats(16 * 128, 1), v = RandomFloats(16 * 128, 2), q = RandomFloats(128, 3);
  const std::vector<Sequence> first = {{0, 16, PageList({0})}};
  for (int layer = 0; layer < 3; ++layer) kv->Write(layer, Rows(first), k.data(), v.data(), pool);
  kv->Copy(PageId{0}, PageId{3});
  for (int layer = 0; layer < 3; ++layer) {
    const std::vector<Sequence> from = {{15, 1, PageList({0})}}, to = {{15, 1, PageList({3})}};
    std::vector<float> expected(128), out(128);
    Attention(*kv, layer, 2, 0.125f, Rows(from), q.data(), expected.data(), pool);
    Attention(*kv, layer, 2, 0.125f, Rows(to), q.data(), out.data(), pool);
    EXPECT_EQ(out, expected);
  }
  kv->Discard(PageId{3});
  std::vector<float> out(128, 1.0f);
  const std::vector<Sequence> gone = {{15, 1, PageList({3})}};
  Attention(*kv, 0, 2, 0.125f, Rows(gone), q.data(), out.data(), pool);
  for (float value : out) EXPECT_EQ(value, 0.0f);
}

// Whether the system grants huge pages is its own affair; what is given back is in none.
TEST(KvPages, HugePagesAreCountedWhereGranted) {
  auto kv = KvPages::Create({30, 3, 64, KvType::kBf16}, 64);  // 22.5 MiB
  ASSERT_TRUE(kv);
  EXPECT_EQ(kv->HugePageBytes(), 0u);
  for (std::uint32_t page = 1; page < 64; ++page) kv->Copy(PageId{0}, PageId{page});
  EXPECT_LE(kv->HugePageBytes(), std::size_t{64} * 368640);
  kv->Discard(PageId{0}, 64);
  EXPECT_EQ(kv->HugePageBytes(), 0u);
}

TEST(KvPages, SizesAreStatedAndChecked) {
  EXPECT_EQ(KvBytesPerToken({30, 3, 64, KvType::kBf16}), 30u * 3 * 64 * 2 * 2);
  EXPECT_EQ(KvBytesPerToken({32, 8, 128, KvType::kF32}), 32u * 8 * 128 * 2 * 4);
  EXPECT_EQ(KvBytesPerToken({32, 1, 576, KvType::kBf16, 512}), 32u * 576 * 2);
  EXPECT_FALSE(KvPages::Create({1, 1, 64, KvType::kBf16, 65}, 4));
  EXPECT_FALSE(KvPages::Create({0, 3, 64, KvType::kBf16}, 4));
  EXPECT_FALSE(KvPages::Create({30, 3, -1, KvType::kBf16}, 4));
  auto huge = KvPages::Create({1000, 1000, 4096, KvType::kF32}, 0xffffffffu);
  ASSERT_FALSE(huge);
  EXPECT_EQ(huge.error().kind, ErrorKind::kResourceExhausted);
}

}  // namespace
}  // namespace tare::kernels
