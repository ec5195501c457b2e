#include "base/sha256.h"

#include <gtest/gtest.h>

namespace tare {
namespace {

// FIPS 180-4, examples of one and two blocks, and the empty message.
constexpr std::string_view kTwoBlocks = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
constexpr const char* kTwoBlocksHex =
    "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1";

TEST(Sha256Test, GivesTheStandardsExamples) {
  EXPECT_EQ(ToHex(Sha256("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(ToHex(Sha256(kTwoBlocks)), kTwoBlocksHex);
  EXPECT_EQ(ToHex(Sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(Sha256Test, PiecesGiveWhatTheWholeGives) {
  for (std::size_t cut = 0; cut <= kTwoBlocks.size(); ++cut) {
    Sha256Stream stream;
    stream.Add(kTwoBlocks.substr(0, cut));
    stream.Add(kTwoBlocks.substr(cut));
    EXPECT_EQ(ToHex(stream.Finish()), kTwoBlocksHex);
  }
}

}  // namespace
}  // namespace tare
