// Which upstream lately saw the beginning of a prompt, so that the next prompt with that beginning
// can go where its KV pages are.
//
// A prompt's beginning is hashed block by block, each hash covering everything before it too; an
// upstream's name is kept beside each. Bounded: the entries used longest ago are forgotten.
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tare::gateway {

class PrefixIndex {
 public:
  static constexpr std::size_t kBlockBytes = 512;
  // 64 KiB tell prompts apart well enough; hashing more costs time and tells little more.
  static constexpr std::size_t kMaxBlocks = 128;

  explicit PrefixIndex(std::size_t max_entries = 100'000) : max_entries_(max_entries) {}

  // What keeps the prompts of models and of their adapters apart: the KV pages are not the same.
  static std::uint64_t Salt(const std::string& model, const std::string& adapter);

  // The hashes of the whole blocks of the parts' concatenation, which another `salt` shares none
  // of.
  static std::vector<std::uint64_t> Blocks(std::uint64_t salt,
                                           std::initializer_list<std::string_view> parts);

  // Bytes of the longest known beginning at `upstream`.
  std::size_t Known(const std::vector<std::uint64_t>& blocks, std::uint32_t upstream) const;
  void Add(const std::vector<std::uint64_t>& blocks, std::uint32_t upstream);
  std::size_t size() const { return entries_.size(); }

 private:
  std::size_t max_entries_;
  std::list<std::uint64_t> used_;  // last used first
  std::unordered_map<std::uint64_t, std::list<std::uint64_t>::iterator> entries_;
};

}  // namespace tare::gateway
