#include "model/gguf.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cstring>

#include "base/test_model.h"
#include "model/gguf_writer.h"

namespace tare::model {
namespace {

std::span<const std::byte> Bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string SmallFile() {
  GgufWriter writer;
  writer.Add("general.architecture", "llama");
  writer.Add("llama.block_count", std::uint32_t{2});
  writer.Add("llama.rope.freq_base", 100000.0f);
  writer.Add("tokenizer.ggml.add_bos_token", true);
  const std::vector<std::string> tokens = {"<s>", "", "hello", "\xe4\xbd\xa0"};
  writer.Add("tokenizer.ggml.tokens", tokens);
  const std::vector<std::int32_t> types = {3, 1, -1, 6};
  writer.Add("tokenizer.ggml.token_type", types);
  const std::vector<float> scores = {0.0f, -1.5f, 2.0f, 1e-30f};
  writer.Add("tokenizer.ggml.scores", scores);
  const std::string norm(5 * 4, '\x3f');
  const std::string matrix(2 * 3 * 20, '\x01');
  const std::int64_t norm_dims[] = {5};
  const std::int64_t matrix_dims[] = {64, 3};
  writer.AddTensor("norm", 0, norm_dims, Bytes(norm));
  writer.AddTensor("matrix", 3, matrix_dims, Bytes(matrix));
  return writer.Finish();
}

// Touches everything a reader offers; sanitizers find what is out of bounds.
std::size_t Visit(const GgufFile& file) {
  std::size_t sum = 0;
  for (const std::string_view key : file.Keys()) {
    sum += file.String(key).value_or("").size();
    sum += static_cast<std::size_t>(file.Int(key).value_or(0));
    sum += file.Float(key).has_value();
    sum += file.Bool(key).has_value();
    for (const auto text : file.Strings(key).value_or(std::vector<std::string_view>()))
      sum += text.size();
    for (const auto number : file.Ints(key).value_or(std::vector<std::int64_t>()))
      sum += number != 0;
    for (const auto number : file.Floats(key).value_or(std::vector<float>())) sum += number != 0;
  }
  for (const GgufTensor& tensor : file.tensors()) {
    if (const auto view = file.View(tensor)) {
      for (const std::byte b : view->data) sum += static_cast<std::size_t>(b);
    }
    EXPECT_EQ(file.Find(tensor.name), &tensor);
  }
  return sum;
}

TEST(GgufTest, ReadsMetadata) {
  const std::string bytes = SmallFile();
  const auto file = GgufFile::Parse(Bytes(bytes), "small.gguf");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->version(), 3u);
  EXPECT_EQ(file->String("general.architecture").value(), "llama");
  EXPECT_EQ(file->Int("llama.block_count").value(), 2);
  EXPECT_EQ(file->Float("llama.rope.freq_base").value(), 100000.0);
  EXPECT_TRUE(file->Bool("tokenizer.ggml.add_bos_token").value());
  EXPECT_EQ(file->Strings("tokenizer.ggml.tokens").value(),
            (std::vector<std::string_view>{"<s>", "", "hello", "\xe4\xbd\xa0"}));
  EXPECT_EQ(file->Ints("tokenizer.ggml.token_type").value(),
            (std::vector<std::int64_t>{3, 1, -1, 6}));
  EXPECT_EQ(file->Floats("tokenizer.ggml.scores").value(),
            (std::vector<float>{0.0f, -1.5f, 2.0f, 1e-30f}));
}

TEST(GgufTest, TellsMissingFromWrongType) {
  const std::string bytes = SmallFile();
  const auto file = GgufFile::Parse(Bytes(bytes), "small.gguf").value();
  EXPECT_EQ(file.IntOr("no.such", 7).value(), 7);
  EXPECT_EQ(file.Int("no.such").error().kind, ErrorKind::kNotFound);
  const auto wrong = file.IntOr("general.architecture", 7);
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().message,
            "small.gguf: key 'general.architecture' is a value of type string, an integer of at "
            "most 63 bits is needed");
  EXPECT_FALSE(file.Strings("tokenizer.ggml.scores"));
  EXPECT_FALSE(file.Floats("tokenizer.ggml.tokens"));
  EXPECT_FALSE(file.Ints("tokenizer.ggml.tokens"));
  EXPECT_FALSE(file.String("tokenizer.ggml.tokens"));
}

TEST(GgufTest, PlacesTensors) {
  const std::string bytes = SmallFile();
  auto parsed = GgufFile::Parse(Bytes(bytes), "small.gguf");
  ASSERT_TRUE(parsed);
  const GgufFile file = *std::move(parsed);
  ASSERT_EQ(file.tensors().size(), 2u);
  const GgufTensor* matrix = file.Find("matrix");
  ASSERT_NE(matrix, nullptr);
  EXPECT_EQ(matrix->ShapeText(), "[64, 3]");
  const auto view = file.View(*matrix);
  ASSERT_TRUE(view);
  EXPECT_EQ(view->type, kernels::StoredType::kQ4_1);
  EXPECT_EQ(view->rows, 3);
  EXPECT_EQ(view->cols, 64);
  EXPECT_EQ(view->data.size(), 120u);
  EXPECT_EQ(view->data.front(), std::byte{1});
  EXPECT_EQ(view->data.back(), std::byte{1});
  EXPECT_EQ(file.Find("norm")->data.front(), std::byte{0x3f});
  EXPECT_EQ(file.Find("gone"), nullptr);
}

// One field of a good file changed, and what the message must say.
std::string ErrorAfter(std::string bytes, std::size_t at, std::uint64_t value, std::size_t width) {
  std::memcpy(bytes.data() + at, &value, width);
  const auto file = GgufFile::Parse(Bytes(bytes), "f");
  return file ? "no error" : file.error().message;
}

TEST(GgufTest, NamesWhatIsWrong) {
  const std::string good = SmallFile();
  EXPECT_NE(ErrorAfter(good, 0, 'X', 1).find("not a GGUF file"), std::string::npos);
  EXPECT_NE(ErrorAfter(good, 4, 1, 4).find("version 1"), std::string::npos);
  EXPECT_NE(ErrorAfter(good, 4, 0x03000000, 4).find("big-endian"), std::string::npos);
  EXPECT_NE(ErrorAfter(good, 8, ~0ull, 8).find("tensors"), std::string::npos);
  EXPECT_NE(ErrorAfter(good, 16, ~0ull, 8).find("metadata entries"), std::string::npos);
  EXPECT_NE(ErrorAfter(good, 24, ~0ull, 8).find("claims 18446744073709551615 bytes"),
            std::string::npos);

  // The entry of 'matrix': name, u32 rank, 2 x u64 dims, u32 type, u64 offset.
  const std::size_t entry = good.find("matrix") + 6;
  EXPECT_NE(ErrorAfter(good, entry, 5, 4).find("'matrix' has 5 dimensions"), std::string::npos);
  EXPECT_NE(ErrorAfter(good, entry + 4, 0, 8).find("dimension 0 is 0"), std::string::npos);
  EXPECT_NE(ErrorAfter(good, entry + 4, 33, 8).find("multiple of the 32"), std::string::npos);
  EXPECT_NE(ErrorAfter(good, entry + 4, 1ull << 62, 8).find("too large"), std::string::npos);
  std::string huge = good;
  huge[entry + 20] = 0;  // F32
  EXPECT_NE(ErrorAfter(huge, entry + 12, 1ull << 56, 8).find("larger than any file"),
            std::string::npos);
  EXPECT_NE(ErrorAfter(good, entry + 12, 4, 8).find("needs 160 bytes"), std::string::npos);
  EXPECT_NE(ErrorAfter(good, entry + 20, 4, 4).find("Q4_2, which was removed"), std::string::npos);
  EXPECT_NE(ErrorAfter(good, entry + 20, 999, 4).find("type id 999"), std::string::npos);
  EXPECT_NE(ErrorAfter(good, entry + 24, 33, 8).find("multiple of 32"), std::string::npos);
  EXPECT_NE(ErrorAfter(good, entry + 24, 0, 8).find("overlap"), std::string::npos);
}

TEST(GgufTest, RefusesUnreadableTypeByName) {
  std::string bytes = SmallFile();
  const std::uint32_t iq4_nl = 20;
  std::memcpy(bytes.data() + bytes.find("matrix") + 6 + 20, &iq4_nl, 4);
  const auto file = GgufFile::Parse(Bytes(bytes), "small.gguf");
  ASSERT_TRUE(file) << file.error().message;
  GgufTensor tensor = *file->Find("matrix");
  tensor.type = FindGgmlType(16);
  const auto view = file->View(tensor);
  ASSERT_FALSE(view);
  EXPECT_EQ(view.error().kind, ErrorKind::kUnsupported);
  EXPECT_NE(view.error().message.find("'matrix' has type IQ2_XXS"), std::string::npos);
}

TEST(GgufTest, RefusesTwins) {
  GgufWriter keys;
  keys.Add("a", 1.0f);
  keys.Add("a", 2.0f);
  const std::string two_keys = keys.Finish();
  EXPECT_NE(GgufFile::Parse(Bytes(two_keys), "f").error().message.find("'a' appears twice"),
            std::string::npos);
  GgufWriter tensors;
  const std::int64_t dims[] = {1};
  tensors.AddTensor("t", 0, dims, Bytes(std::string(4, '\0')));
  tensors.AddTensor("t", 0, dims, Bytes(std::string(4, '\0')));
  const std::string two_tensors = tensors.Finish();
  EXPECT_NE(GgufFile::Parse(Bytes(two_tensors), "f").error().message.find("'t' appears twice"),
            std::string::npos);
}

TEST(GgufTest, RefusesBadAlignment) {
  for (const std::uint32_t alignment : {0u, 1u, 4u, 24u, 1u << 30}) {
    GgufWriter writer;
    writer.Add("general.alignment", alignment);
    const std::string bytes = writer.Finish();
    EXPECT_FALSE(GgufFile::Parse(Bytes(bytes), "f")) << alignment;
  }
}

TEST(GgufTest, EveryTruncationIsAnError) {
  const std::string good = SmallFile();
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(GgufFile::Parse(Bytes(good).first(size), "f")) << size;
  }
}

RC_GTEST_PROP(GgufProperty, FlippedBitsNeverCrash, ()) {
  std::string bytes = SmallFile();
  const int flips = *rc::gen::inRange(1, 8);
  for (int i = 0; i < flips; ++i) {
    const auto at = *rc::gen::inRange<std::size_t>(0, bytes.size());
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << *rc::gen::inRange(0, 8)));
  }
  const auto file = GgufFile::Parse(Bytes(bytes), "f");
  if (file) {
    Visit(*file);
  } else {
    RC_ASSERT(file.error().message.find("f") != std::string::npos);
  }
}

RC_GTEST_PROP(GgufProperty, HostileWordsNeverCrash, ()) {
  std::string bytes = SmallFile();
  const auto at = *rc::gen::inRange<std::size_t>(4, bytes.size() - 8);
  const auto word = *rc::gen::element<std::uint64_t>(~0ull, 1ull << 63, (1ull << 63) - 1,
                                                     1ull << 62, 1ull << 32, 0xffffffffull, 0);
  std::memcpy(bytes.data() + at, &word, 8);
  if (const auto file = GgufFile::Parse(Bytes(bytes), "f")) Visit(*file);
}

TEST(GgufTest, ReadsRealModel) {
  const auto path = FindTestModel();
  if (!path) GTEST_SKIP() << kTestModelMissing;
  const auto file = GgufFile::Open(*path);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->String("general.architecture").value(), "llama");
  EXPECT_EQ(file->tensors().size(), 272u);
  EXPECT_EQ(file->Find("token_embd.weight")->ShapeText(), "[576, 49152]");
  EXPECT_EQ(file->Strings("tokenizer.ggml.tokens")->size(), 49152u);
}

}  // namespace
}  // namespace tare::model
