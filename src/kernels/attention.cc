#include <vector>

#include "base/check.h"
#include "kernels/kernel_table.h"
#include "kernels/kv_impl.h"

namespace tare::kernels {

void Attention(const KvPages& kv, int layer, int heads, float scale,
               std::span<const SequenceRows> sequences, const float* q, float* out,
               ThreadPool& pool) {
  const KvPages::Impl& impl = kv.impl();
  const int kv_heads = impl.shape.kv_heads;
  TARE_CHECK(heads > 0 && heads % kv_heads == 0);
  const int group = heads / kv_heads;
  const int head_dim = impl.layout.head_dim;

  struct Piece {
    const SequenceRows* rows;
    int row;  // within the sequence
    int kv_head;
  };
  std::vector<Piece> pieces;
  for (const SequenceRows& rows : sequences) {
    TARE_CHECK(rows.num_rows == 0 || static_cast<std::size_t>((rows.start + rows.num_rows - 1) /
                                                              kTokensPerPage) < rows.pages.size());
    for (int row = 0; row < rows.num_rows; ++row) {
      for (int head = 0; head < kv_heads; ++head) pieces.push_back({&rows, row, head});
    }
  }
  const KernelTable& kernels = Kernels();
  pool.ParallelFor(pieces.size(), 1, [&](std::size_t begin, std::size_t end) {
    for (std::size_t p = begin; p < end; ++p) {
      const Piece& piece = pieces[p];
      const auto at = (static_cast<std::size_t>(piece.rows->first_row + piece.row) *
                           static_cast<std::size_t>(heads) +
                       static_cast<std::size_t>(piece.kv_head * group)) *
                      static_cast<std::size_t>(head_dim);
      const KvHead head{&impl.layout, impl.HeadAt(PageId{0}, layer, piece.kv_head)};
      kernels.attend(head, piece.rows->pages.data(), piece.rows->start + piece.row + 1, q + at,
                     group, scale, out + at);
    }
  });
}

}  // namespace tare::kernels
