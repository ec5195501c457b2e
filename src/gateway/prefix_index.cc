#include "gateway/prefix_index.h"

#include <xxhash.h>

#include <algorithm>
#include <functional>
#include <string>

namespace tare::gateway {

namespace {

// One entry stands for (beginning, upstream).
std::uint64_t Key(std::uint64_t block, std::uint32_t upstream) {
  return block ^ (0x9E3779B97F4A7C15ULL * (std::uint64_t{upstream} + 1));
}

}  // namespace

std::uint64_t PrefixIndex::Salt(const std::string& model, const std::string& adapter) {
  return std::hash<std::string>()(model + '\0' + adapter);
}

std::vector<std::uint64_t> PrefixIndex::Blocks(std::uint64_t salt,
                                               std::initializer_list<std::string_view> parts) {
  std::vector<std::uint64_t> hashes;
  std::string open;  // a block begun by a part and not filled yet
  const auto close = [&](std::string_view block) {
    salt = XXH3_64bits_withSeed(block.data(), block.size(), salt);
    hashes.push_back(salt);
  };
  for (std::string_view part : parts) {
    while (!part.empty() && hashes.size() < kMaxBlocks) {
      const std::size_t take = std::min(kBlockBytes - open.size(), part.size());
      if (open.empty() && take == kBlockBytes) {
        close(part.substr(0, take));
      } else {
        open.append(part.substr(0, take));
        if (open.size() == kBlockBytes) {
          close(open);
          open.clear();
        }
      }
      part.remove_prefix(take);
    }
  }
  return hashes;
}

std::size_t PrefixIndex::Known(const std::vector<std::uint64_t>& blocks,
                               std::uint32_t upstream) const {
  std::size_t known = 0;
  for (const std::uint64_t block : blocks) {
    if (entries_.count(Key(block, upstream)) == 0) break;
    ++known;
  }
  return known * kBlockBytes;
}

void PrefixIndex::Add(const std::vector<std::uint64_t>& blocks, std::uint32_t upstream) {
  // From the last block: the beginnings, which others share, end up as the most recent.
  for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
    const std::uint64_t key = Key(*block, upstream);
    if (const auto found = entries_.find(key); found != entries_.end()) {
      used_.splice(used_.begin(), used_, found->second);
      continue;
    }
    used_.push_front(key);
    entries_.emplace(key, used_.begin());
    if (entries_.size() > max_entries_) {
      entries_.erase(used_.back());
      used_.pop_back();
    }
  }
}

}  // namespace tare::gateway
