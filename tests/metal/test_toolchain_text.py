"""The rewriting of MSL text, pass by pass: what clang gets for a small text. No compiler runs here."""

from __future__ import annotations

import re

import pytest

from toolchain.entries import Argument
from toolchain.tokens import MslError, Source, lex
from toolchain.translate import Translation, translate

KERNEL = "kernel void f(device float* a [[buffer(0)]], uint i [[thread_position_in_grid]]) {{ {} }}"


def squeezed(text: str) -> str:
    """Without line markers, and with single spaces."""
    return re.sub(r"\s+", " ", re.sub(r"(?m)^#line.*$", "", text)).strip()


def body(statement: str) -> str:
    """What becomes of a statement in a kernel."""
    text = squeezed(translate(KERNEL.format(statement)).text)
    return text[text.index("{") + 1 : text.index('extern "C"')].strip().removesuffix("}").strip()


def complaints(text: str) -> list[str]:
    return [re.sub(r"^:", "", line) for line in translate(text).complaints]


def test_tokens_keep_every_character_and_their_place() -> None:
    text = 'int a; // "x\'\n# 7 "k.metal"\nfloat b = 1.5e-3f >> 2; char c = \'"\';\n'
    source = Source(text)
    assert source.text() == text + "\n"
    place = next(i for i in range(len(source)) if source[i] == "b")
    assert source.place(place) == "k.metal:7"


def test_text_of_system_headers_is_not_edited() -> None:
    header = '# 1 "metal_stdlib" 1 3\nthreadgroup device kernel\n# 2 "k.metal" 2\n'
    text = translate(header + "constant uint N = 4;\n").text
    assert "threadgroup device kernel" in text
    assert "static const uint N = 4;" in text


def test_the_newline_token_is_not_significant() -> None:
    assert [token.kind for token in lex("a\nb")] == ["name", "other", "name", "other"]


@pytest.mark.parametrize(
    ("text", "closing"),
    [("f<a, g<b>>(c)", 8), ("a < b && c > d", -1), ("f<(a > b)>", 7), ("a < b;", -1)],
)
def test_template_lists_and_comparisons(text: str, closing: int) -> None:
    source = Source(text)
    opening = next(i for i in range(len(source)) if source[i] == "<")
    assert source.close_angle(opening) == closing


def test_an_open_bracket_is_named() -> None:
    with pytest.raises(MslError, match=r"k.metal:3: error: no '\)' closes this '\('"):
        translate('# 3 "k.metal"\nkernel void f(device float* a {\n')


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("float4 v = float4(x, 1);", "float4 v = __mk<float4>(x, 1);"),
        ("v = metal::float2(x);", "v = __mk<metal :: float2>(x);"),
        ("v = vec<T, 4>(x);", "v = __mk<vec < T , 4 >> (x);"),
        ("v = foo<vec<half, 4>>(x);", "v = foo<vec<half, 4>>(x);"),
        ("return a * float4(b);", "return a * __mk<float4>(b);"),
        ("float4 v(a, b, c, d);", "float4 v = __mk<float4>(a, b, c, d);"),
        ("float2 v(1), w = v, u(2);", "float2 v = __mk<float2>(1), w = v, u = __mk<float2>(2);"),
        ("v = (half4)w;", "v = __castto<half4>() ->* w;"),
        ("v = (half4)(float4)w;", "v = __castto<half4>() ->* __castto<float4>() ->* w;"),
        ("f = static_cast<half>(x);", "f = __mk<half>(x);"),
        ("p = static_cast<device float*>(x);", "p = static_cast<__attribute__((opencl_global_device)) float*>(x);"),
        ("h = 1.5h + 2h;", "h = ((half)1.5f) + ((half)2.0f);"),
        ("b = 1e2bf;", "b = ((bfloat)1e2f);"),
        ("x = 0x1fh;", "x = 0x1fh;"),
        ("device float4* q = (device float4*)a;",
         "__attribute__((opencl_global_device)) float4* q = (__attribute__((opencl_global_device)) float4*)a;"),
        ("threadgroup atomic_uint* c;", "__local __msl_atomic_uint* c;"),
        ("x = y.local + global;", "x = y.local_ + global_;"),
        ("constexpr constant uint K = 4;", "constexpr uint K = 4;"),
    ],
)  # fmt: skip
def test_expressions_and_declarations(before: str, after: str) -> None:
    assert body(before) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("threadgroup float t;", "__local float &t = *(__local float *)__msl_tg(0, sizeof(float));"),
        ("threadgroup half t[2][N >> 1];",
         "__local half (&t)[ 2 ][ N>>1 ] = *(__local half (*)[ 2 ][ N>>1 ])__msl_tg(0, sizeof(half[ 2 ][ N>>1 ]));"),
        ("threadgroup uint a, b;",
         ("__local uint &a = *(__local uint *)__msl_tg(0, sizeof(uint)); "
          "__local uint &b = *(__local uint *)__msl_tg(1, sizeof(uint));")),
        ("threadgroup uint n = 3;",
         "__local uint &n = *(__local uint *)__msl_tg(0, sizeof(uint)); if (__msl_index() == 0) { n = 3; }"),
        ("threadgroup float* p = t;", "__local float* p = t;"),
    ],
)  # fmt: skip
def test_threadgroup_variables(before: str, after: str) -> None:
    assert body(before).replace(" ", "") == after.replace(" ", "")


def test_threadgroup_variables_are_numbered_in_each_kernel() -> None:
    text = translate(
        "kernel void f() { threadgroup int a; threadgroup int b[3]; } kernel void g() { threadgroup int c; }"
    ).text
    assert re.findall(r"__msl_tg\((\d+)", text) == ["0", "1", "0"]


def test_a_kernel_has_a_limit_of_threadgroup_variables() -> None:
    many = " ".join(f"threadgroup int a{i};" for i in range(65))
    with pytest.raises(MslError, match="more than 64 threadgroup variables"):
        translate(f"kernel void f() {{ {many} }}")


def test_function_constants() -> None:
    translation = translate(
        "constant uint N [[function_constant(3)]]; constant uint M = N * 2; constant bool B = "
        "is_function_constant_defined(N);"
    )
    text = squeezed(translation.text)
    assert 'extern "C" { __global uint __msl_fc_3; __global unsigned char __msl_fcd_3; }' in text
    assert "#define M ((uint)(N * 2))" in text
    assert "__msl_isdef_N" in text
    assert [(c.name, c.index, c.type) for c in translation.constants] == [("N", 3, "uint")]


def test_tables_of_constants() -> None:
    text = squeezed(translate("constant float T[2] = {1, 2};").text)
    assert "static const __global float T__c[2] = {1, 2};" in text
    assert "#define T (__as_const(T__c))" in text


def argument(translation: Translation, index: int) -> Argument:
    return translation.entries[0].arguments[index]


def test_entries_bind_what_attributes_say() -> None:
    translation = translate(
        "kernel [[max_total_threads_per_threadgroup(64)]] void f(device const half* a [[buffer(2)]], "
        "device float* o [[buffer(0), function_constant(has_o)]], threadgroup float* s [[threadgroup(1)]], "
        "ushort2 p [[thread_position_in_grid]]) {}"
    )
    (entry,) = translation.entries
    assert (entry.name, entry.max_threads) == ("f", 64)
    assert argument(translation, 0) == Argument("buffer", 2, "a", "device const half *", "")
    assert argument(translation, 1).optional == "has_o"
    assert [a.writable for a in entry.arguments] == [False, True, False]
    assert "__msl_buf<__msl_par<decltype(f), 0>>(A->buf[2])" in translation.text
    assert "__msl_posarg<__msl_par<decltype(f), 3>>(__msl_v3(" in translation.text


@pytest.mark.parametrize(
    "instantiation",
    [
        'template [[host_name("g_half")]] [[kernel]] decltype(g<half, 4>) g<half, 4>;',
        'template [[host_name("g_half")]] kernel decltype(g<half, 4>) g<half, 4>;',
        'template [[host_name("g_half")]] kernel void g<half, 4>(device half* a [[buffer(0)]]);',
    ],
)
def test_instantiations(instantiation: str) -> None:
    template = "template <typename T, int N> kernel void g(device T* a [[buffer(0)]]) {} "
    translation = translate(template + instantiation)
    assert [entry.name for entry in translation.entries] == ["g_half"]
    assert "decltype(g < half , 4 >)" in translation.text


def test_a_template_alone_is_no_kernel() -> None:
    assert translate("template <typename T> kernel void g(device T* a [[buffer(0)]]) {}").entries == ()


def test_cuda_entries_take_their_arguments_by_value() -> None:
    text = translate(KERNEL.format(""), cuda=True).text
    assert "__kernel __attribute__((used)) void __msl_k_0(__msl_args __a)" in text


def test_what_cannot_be_bound_is_an_error() -> None:
    with pytest.raises(MslError, match=r"k.metal:1: error: parameter 'a' of kernel f has no \[\[buffer\(n\)\]\]"):
        translate('# 1 "k.metal"\nkernel void f(device float* a) {}')
    with pytest.raises(MslError, match="instantiation 'h' names 'h', which is no kernel"):
        translate('template [[host_name("h")]] kernel void h<half>(device half* a [[buffer(0)]]);')


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("void f(float* p) {}", 1),
        ("void f(const float& p) {}", 1),
        ("void f(device float* p, thread int& q, array<int*, 2> r) {}", 0),
        ("template <typename T> void f(T&& p) {}", 0),
        ("void f() { float* p = q; }", 1),
        ("void f() { const float* const p = q; }", 1),
        ("void f() { thread float* p = q; auto* r = q; x = y * z; }", 0),
        ("void f() { threadgroup float q[4]; }", 1),
        ("kernel void f() { threadgroup float q[4]; }", 0),
    ],
)
def test_address_spaces_are_named(text: str, count: int) -> None:
    assert len(complaints(text)) == count


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("struct S { float get() const { return v; } };", "float get() const __private {"),
        ("struct S { float get() const thread { return v; } };", "float get() const __private {"),
        ("struct S { float get() const device { return v; } };", "float get() const __global {"),
        ("struct S { static float get() { return 1; } };", "static float get() {"),
        ("struct S { S(float a) : v(a) {} };", "S(float a) : v(a) {}"),
        ("struct S { S(float a) thread : v(a) {} };", "S(float a) : v(a) {}"),
    ],
)
def test_member_functions_are_in_thread(before: str, after: str) -> None:
    assert after in squeezed(translate(before).text)
