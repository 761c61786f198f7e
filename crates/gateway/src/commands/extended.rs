//! Numbers with a 64-bit significand, as the `long double` that Redis computes `INCRBYFLOAT` in:
//! parse, add, print.
//!
//! Doubles would not do: `0.1 + 0.2` is to print as `0.3`, which needs the eleven bits that they
//! lack. Everything is rounded half to even, exactly, by way of whole numbers of any length; texts
//! are bounded ([`MAX_TEXT_BYTES`]), so those are too. Deliberately absent: every operation but
//! addition.

use core::cmp::Ordering;

/// Longest text of a number, in bytes; Redis's buffer has room for one byte more.
const MAX_TEXT_BYTES: usize = 5 * 1024 - 1;
/// Bits of the significand.
const BITS: u32 = 64;
/// The greatest and the lowest exponent of the significand's last bit: beyond is infinity, below is
/// nothing.
const MAX_EXPONENT: i64 = 16_384 - BITS as i64;
const MIN_EXPONENT: i64 = -16_445;
/// Numbers whose decimal point would stand further than this from their first digit are nothing or
/// infinity: the greatest is below 10^4933, and half of the least above 10^-4951.
const MAX_DECIMAL_PLACES: i64 = 4_960;
/// Digits after the point of a printed number, before trailing zeros go.
const FRACTION_DIGITS: u32 = 17;

/// A number: `significand * 2^exponent`, with the sign aside; or an infinity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Extended {
    /// A finite number.
    Finite {
        /// Below zero.
        negative: bool,
        /// Its digits.
        significand: u64,
        /// The power of two that its last bit stands for.
        exponent: i32,
    },
    /// Too great for the format.
    Infinite {
        /// Below zero.
        negative: bool,
    },
}

impl Extended {
    pub(crate) const ZERO: Self = Self::Finite { negative: false, significand: 0, exponent: 0 };

    /// Reads what C's `strtold` reads, if it is the whole text; `None` for anything that Redis
    /// calls no valid float.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        if text.len() > MAX_TEXT_BYTES {
            return None;
        }
        let (negative, digits) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            _ => (false, text),
        };
        if digits.eq_ignore_ascii_case(b"inf") || digits.eq_ignore_ascii_case(b"infinity") {
            return Some(Self::Infinite { negative });
        }
        let parsed = match digits {
            [b'0', b'x' | b'X', rest @ ..] => parse_digits(rest, 16, b'p')?,
            _ => parse_digits(digits, 10, b'e')?,
        };
        let (significand, exponent) = parsed.round()?;
        Some(Self::Finite { negative, significand, exponent })
    }

    /// The sum; `None` when it is not a finite number.
    pub(crate) fn add(self, other: Self) -> Option<Self> {
        let (
            Self::Finite { negative, significand, exponent },
            Self::Finite {
                negative: other_negative,
                significand: other_significand,
                exponent: other_exponent,
            },
        ) = (self, other)
        else {
            return None;
        };
        let lowest = exponent.min(other_exponent);
        let mut left = Natural::from(significand);
        left.shift_left((exponent - lowest).unsigned_abs() as usize);
        let mut right = Natural::from(other_significand);
        right.shift_left((other_exponent - lowest).unsigned_abs() as usize);
        let (negative, sum) = if negative == other_negative {
            left.add(&right);
            (negative, left)
        } else if left.compare(&right) == Ordering::Less {
            right.subtract(&left);
            (other_negative, right)
        } else {
            left.subtract(&right);
            (negative, left)
        };
        if sum.is_zero() {
            return Some(Self::ZERO);
        }
        let (top, dropped, rest) = sum.top();
        let (significand, exponent) = round(top, rest, i64::from(lowest) + dropped as i64)?;
        Some(Self::Finite { negative, significand, exponent })
    }

    /// Appends the number with 17 digits after the point, without trailing zeros: Redis's form for
    /// people.
    pub(crate) fn print(self, out: &mut Vec<u8>) {
        let Self::Finite { negative, significand, exponent } = self else {
            return out.extend_from_slice(b"inf");
        };
        let start = out.len();
        if negative {
            out.push(b'-');
        }
        if exponent >= 0 {
            let mut integer = Natural::from(significand);
            integer.shift_left(exponent.unsigned_abs() as usize);
            return integer.print(out);
        }
        let scale = 10u128.pow(FRACTION_DIGITS);
        let scaled = shift_right_rounding(u128::from(significand) * scale, exponent.unsigned_abs());
        if scaled == 0 {
            out.truncate(start);
            return out.push(b'0');
        }
        out.extend_from_slice((scaled / scale).to_string().as_bytes());
        let fraction = scaled % scale;
        if fraction > 0 {
            let digits = format!(".{fraction:0width$}", width = FRACTION_DIGITS as usize);
            out.extend_from_slice(digits.trim_end_matches('0').as_bytes());
        }
    }
}

/// `value / 2^bits`, rounded half to even.
fn shift_right_rounding(value: u128, bits: u32) -> u128 {
    if bits >= u128::BITS {
        // What is scaled has 121 bits at most, so this is below a half.
        return 0;
    }
    let (quotient, rest, half) = (value >> bits, value & ((1 << bits) - 1), 1u128 << (bits - 1));
    let up = rest > half || (rest == half && quotient & 1 == 1);
    quotient + u128::from(up)
}

/// A text's number as a fraction of whole ones, times a power of two.
struct Parsed {
    numerator: Natural,
    denominator: Natural,
    exponent: i64,
}

/// Digits with a point, and an exponent after `mark`. `None` for anything else, and for what lies
/// far outside of the format: that is told by the length of the text, before anything is computed.
fn parse_digits(text: &[u8], radix: u32, mark: u8) -> Option<Parsed> {
    let end = text.iter().position(|byte| byte.to_ascii_lowercase() == mark);
    let (digits, power) = match end {
        Some(end) => (&text[..end], parse_power(&text[end + 1..])?),
        None => (text, 0),
    };
    // Without leading zeros.
    let mut values = Vec::with_capacity(digits.len());
    let (mut seen, mut point, mut after_point) = (false, false, 0i64);
    for &byte in digits {
        if byte == b'.' && !point {
            point = true;
            continue;
        }
        let digit = char::from(byte).to_digit(radix)?;
        if digit > 0 || !values.is_empty() {
            values.push(digit);
        }
        seen = true;
        after_point += i64::from(point);
    }
    if !seen {
        return None;
    }
    let (numerator, denominator) = (Natural::from(0), Natural::from(1));
    if values.is_empty() {
        return Some(Parsed { numerator, denominator, exponent: 0 });
    }
    if radix == 16 {
        let numerator = Natural::of_digits(&values, radix);
        return Some(Parsed { numerator, denominator, exponent: power - 4 * after_point });
    }
    let power = power - after_point;
    if (values.len() as i64 + power).abs() > MAX_DECIMAL_PLACES {
        return None;
    }
    // 10^n is 5^n, which is shorter by a third, times 2^n.
    let numerator = Natural::of_digits(&values, radix);
    let mut parsed = Parsed { numerator, denominator, exponent: power };
    let scaled = if power >= 0 { &mut parsed.numerator } else { &mut parsed.denominator };
    scaled.multiply_by_power_of_5(power.unsigned_abs());
    Some(parsed)
}

/// The digits of an exponent; great ones are cut, for they are out of range in any case.
fn parse_power(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    if digits.is_empty() {
        return None;
    }
    let mut power = 0i64;
    for &byte in digits {
        let digit = char::from(byte).to_digit(10)?;
        power = (power * 10 + i64::from(digit)).min(1_000_000);
    }
    Some(if negative { -power } else { power })
}

impl Parsed {
    /// The nearest number of the format; `None` when that would be infinite, or nothing although
    /// the text is not zero.
    fn round(mut self) -> Option<(u64, i32)> {
        if self.numerator.is_zero() {
            return Some((0, 0));
        }
        // Scaled so that the quotient has two or three bits more than the significand.
        let shift =
            i64::from(BITS) + 2 - (self.numerator.bits() as i64 - self.denominator.bits() as i64);
        let side = if shift >= 0 { &mut self.numerator } else { &mut self.denominator };
        side.shift_left(shift.unsigned_abs() as usize);
        let (quotient, rest) = self.numerator.divide(self.denominator);
        round(quotient, rest, self.exponent - shift)
    }
}

/// Rounds `value * 2^exponent`, with `rest` telling whether something follows behind the last bit.
fn round(value: u128, rest: bool, exponent: i64) -> Option<(u64, i32)> {
    let length = i64::from(u128::BITS - value.leading_zeros());
    let drop = (length - i64::from(BITS)).max(MIN_EXPONENT - exponent).max(0);
    let (mut kept, mut exponent) = (value, exponent + drop);
    if drop > i64::from(BITS) + 3 {
        return None;
    }
    if drop > 0 {
        let (low, half) = (value & ((1 << drop) - 1), 1u128 << (drop - 1));
        kept = value >> drop;
        let up = low > half || (low == half && (rest || kept & 1 == 1));
        kept += u128::from(up);
        if kept >> BITS != 0 {
            kept >>= 1;
            exponent += 1;
        }
    }
    let significand = u64::try_from(kept).ok().filter(|&kept| kept > 0)?;
    let highest = exponent - i64::from(significand.leading_zeros());
    if highest > MAX_EXPONENT {
        return None;
    }
    Some((significand, i32::try_from(exponent).ok()?))
}

/// A whole number of any length: 32 bits a place, lowest first, no zero at the top.
struct Natural {
    places: Vec<u32>,
}

impl From<u64> for Natural {
    fn from(value: u64) -> Self {
        let mut number = Self { places: vec![value as u32, (value >> 32) as u32] };
        number.trim();
        number
    }
}

impl Natural {
    fn trim(&mut self) {
        while self.places.last() == Some(&0) {
            self.places.pop();
        }
        self.assert_sound();
    }

    fn assert_sound(&self) {
        debug_assert!(self.places.last() != Some(&0), "no zero is at the top");
    }

    fn is_zero(&self) -> bool {
        self.places.is_empty()
    }

    fn bits(&self) -> usize {
        self.places.last().map_or(0, |top| self.places.len() * 32 - top.leading_zeros() as usize)
    }

    fn multiply_add(&mut self, factor: u32, summand: u32) {
        let mut carry = u64::from(summand);
        for place in &mut self.places {
            let product = u64::from(*place) * u64::from(factor) + carry;
            *place = product as u32;
            carry = product >> 32;
        }
        if carry > 0 {
            self.places.push(carry as u32);
        }
        self.assert_sound();
    }

    /// The number with these digits, the highest first.
    fn of_digits(digits: &[u32], radix: u32) -> Self {
        // As many at once as fit 32 bits: each step goes over the whole number.
        let at_once = u32::MAX.ilog(radix);
        debug_assert!(digits.iter().all(|&digit| digit < radix), "digits are below their radix");
        let mut number = Self::from(0);
        for chunk in digits.chunks(at_once as usize) {
            let value = chunk.iter().fold(0, |value, digit| value * radix + digit);
            number.multiply_add(radix.pow(chunk.len() as u32), value);
        }
        number
    }

    fn multiply_by_power_of_5(&mut self, power: u64) {
        // The highest power that fits 32 bits.
        const AT_ONCE: u32 = u32::MAX.ilog(5);
        debug_assert!(!self.is_zero(), "nothing times anything is not asked for");
        for _ in 0..power / u64::from(AT_ONCE) {
            self.multiply_add(5_u32.pow(AT_ONCE), 0);
        }
        self.multiply_add(5_u32.pow((power % u64::from(AT_ONCE)) as u32), 0);
    }

    fn shift_left(&mut self, bits: usize) {
        if self.is_zero() {
            return;
        }
        let (places, part) = (bits / 32, bits % 32);
        if part > 0 {
            self.multiply_add(1 << part, 0);
        }
        self.places.splice(0..0, core::iter::repeat_n(0, places));
        self.assert_sound();
    }

    fn shift_right_one(&mut self) {
        let mut carry = 0;
        for place in self.places.iter_mut().rev() {
            let next = *place & 1;
            *place = *place >> 1 | carry << 31;
            carry = next;
        }
        self.trim();
        self.assert_sound();
    }

    fn compare(&self, other: &Self) -> Ordering {
        let by_length = self.places.len().cmp(&other.places.len());
        by_length.then_with(|| self.places.iter().rev().cmp(other.places.iter().rev()))
    }

    fn add(&mut self, other: &Self) {
        self.places.resize(self.places.len().max(other.places.len()) + 1, 0);
        let mut carry = 0;
        for (index, place) in self.places.iter_mut().enumerate() {
            let sum = u64::from(*place)
                + u64::from(other.places.get(index).copied().unwrap_or(0))
                + carry;
            *place = sum as u32;
            carry = sum >> 32;
        }
        assert!(carry == 0, "a sum is one place longer at most");
        self.trim();
    }

    /// Takes away a number that is not greater.
    fn subtract(&mut self, other: &Self) {
        let mut borrow = 0;
        for (index, place) in self.places.iter_mut().enumerate() {
            let less = i64::from(other.places.get(index).copied().unwrap_or(0)) + borrow;
            let difference = i64::from(*place) - less;
            *place = difference as u32;
            borrow = i64::from(difference < 0);
        }
        assert!(borrow == 0, "only a number that is not greater is taken away");
        self.trim();
    }

    /// The quotient, which has fewer than 68 bits, and whether something is left.
    fn divide(mut self, mut by: Self) -> (u128, bool) {
        const STEPS: usize = BITS as usize + 4;
        by.shift_left(STEPS);
        let mut quotient = 0;
        for _ in 0..=STEPS {
            quotient <<= 1;
            if self.compare(&by) != Ordering::Less {
                self.subtract(&by);
                quotient |= 1;
            }
            by.shift_right_one();
        }
        (quotient, !self.is_zero())
    }

    /// The highest bits (up to 96 and more than the significand's, when there are so many), how
    /// many are left out, and whether one of those is set.
    fn top(&self) -> (u128, usize, bool) {
        let dropped = self.places.len().saturating_sub(4);
        let top = self.places[dropped..]
            .iter()
            .rev()
            .fold(0u128, |top, &place| top << 32 | u128::from(place));
        (top, dropped * 32, self.places[..dropped].iter().any(|&place| place != 0))
    }

    fn print(mut self, out: &mut Vec<u8>) {
        const CHUNK: u64 = 1_000_000_000;
        let mut chunks = Vec::new();
        while !self.is_zero() {
            let mut rest = 0;
            for place in self.places.iter_mut().rev() {
                let value = rest << 32 | u64::from(*place);
                *place = (value / CHUNK) as u32;
                rest = value % CHUNK;
            }
            self.trim();
            chunks.push(rest);
        }
        let first = chunks.pop().unwrap_or(0);
        out.extend_from_slice(first.to_string().as_bytes());
        for chunk in chunks.iter().rev() {
            out.extend_from_slice(format!("{chunk:09}").as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(left: &str, right: &str) -> Option<String> {
        let total = Extended::parse(left.as_bytes())?.add(Extended::parse(right.as_bytes())?)?;
        let mut out = Vec::new();
        total.print(&mut out);
        Some(String::from_utf8(out).unwrap())
    }

    // Expectations were taken from redis-server 7.0.15.
    #[test]
    fn sums_print_as_in_redis() {
        let cases = [
            ("0.1", "0.2", "0.3"),
            ("10.50", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("3", "1.5", "4.5"),
            ("1", "-1", "0"),
            ("-0.5", "0.25", "-0.25"),
            ("0", "1e-18", "0"),
            ("0", "-1e-20", "0"),
            ("0", "1e-17", "0.00000000000000001"),
            ("1e20", "1", "100000000000000000000"),
            ("1e19", "1", "10000000000000000001"),
            ("0x10", "0x1p-1", "16.5"),
            ("+1", "+2", "3"),
            (".5", "5.", "5.5"),
            ("123456789.123456789", "0.000000001", "123456789.12345678999554366"),
            ("9007199254740993", "0", "9007199254740993"),
            ("18446744073709551615", "0", "18446744073709551615"),
        ];
        for (left, right, expected) in cases {
            assert_eq!(sum(left, right).as_deref(), Some(expected), "{left} + {right}");
        }
    }

    #[test]
    fn what_is_no_float_is_refused() {
        for text in [
            "", " 1", "1 ", "abc", "1e", "1e+", "0x", ".", "-", "nan", "1.2.3", "1e5000",
            "1e-5000", "--1",
        ] {
            assert_eq!(Extended::parse(text.as_bytes()), None, "{text:?}");
        }
        let long = vec![b'1'; MAX_TEXT_BYTES + 1];
        assert_eq!(Extended::parse(&long), None);
        assert_eq!(Extended::parse(b"-inf"), Some(Extended::Infinite { negative: true }));
        assert_eq!(sum("inf", "1"), None);
        assert_eq!(sum("1e4932", "1e4932"), None, "the sum is too great");
        assert!(sum("1e4900", "1").is_some());
    }

    /// A number of decimal digits and a power of ten, computed a digit at a time.
    fn digit_by_digit(digits: &str, power: i64) -> Option<(u64, i32)> {
        let mut numerator = Natural::from(0);
        digits.bytes().for_each(|digit| numerator.multiply_add(10, u32::from(digit - b'0')));
        let mut parsed = Parsed { numerator, denominator: Natural::from(1), exponent: 0 };
        let scaled = if power >= 0 { &mut parsed.numerator } else { &mut parsed.denominator };
        (0..power.unsigned_abs()).for_each(|_| scaled.multiply_add(10, 0));
        parsed.round()
    }

    #[test]
    fn numbers_are_what_they_are_digit_by_digit() {
        let long = "9876543210".repeat(500);
        let mut cases: Vec<(&str, i64)> = vec![
            // Around the greatest and the least number, and the half of that.
            ("118973149535723176502", 4912),
            ("118973149535723176508", 4912),
            ("118973149535723176509", 4912),
            ("118973149535723176506", 4912),
            ("36451995318824746025", -4970),
            ("18225997659412373012", -4970),
            ("18225997659412373013", -4970),
            ("33621031431120935063", -4951),
            (&long, -5000),
            (&long, -9940),
            (&long, -9950),
            (&long, -9951),
            (&long, -67),
            (&long, -68),
            ("1", 0),
        ];
        cases.extend((4925..4940).map(|power| ("7", power)));
        cases.extend((4940..4962).map(|power| ("2", -power)));
        cases.extend((4940..4962).map(|power| ("1000000000000000000000000", -24 - power)));
        cases.extend(
            (1..60).map(|power| ("123456789", if power % 2 == 0 { power } else { -power })),
        );
        let mut found = 0;
        for (digits, power) in cases {
            let text = format!("{digits}e{power}");
            let parsed = match Extended::parse(text.as_bytes()) {
                Some(Extended::Finite { significand, exponent, .. }) => {
                    found += 1;
                    Some((significand, exponent))
                }
                Some(Extended::Infinite { .. }) => panic!("{text:.40} is a number"),
                None => None,
            };
            assert_eq!(parsed, digit_by_digit(digits, power), "{text:.40}, 10^{power}");
        }
        assert!(found > 90, "{found} of them are numbers");
    }

    #[test]
    fn zeros_beside_the_digits_do_not_put_a_number_out_of_range() {
        let zeros = "0".repeat(5_000);
        let cases = [
            (format!("0.{zeros}1e5000"), Some("0.1")),
            (format!("{zeros}1"), Some("1")),
            (format!("1{zeros}e-5000"), Some("1")),
            (format!("0.{zeros}"), Some("0")),
            ("0e999999999999".to_owned(), Some("0")),
            (format!("0.{zeros}1"), None),
            (format!("1{zeros}"), None),
            ("1e-10999".to_owned(), None),
            ("1e10999".to_owned(), None),
            ("0x10p-2".to_owned(), Some("4")),
            ("0x123456789abcdef0p-4".to_owned(), Some("81985529216486895")),
        ];
        for (text, expected) in cases {
            assert_eq!(sum(&text, "0").as_deref(), expected, "{text:.20}");
        }
    }

    #[test]
    fn the_last_bit_is_rounded_half_to_even() {
        // 2^64 + 1 lies half way between two numbers of 64 bits, 2^64 + 3 as well.
        assert_eq!(sum("18446744073709551617", "0").as_deref(), Some("18446744073709551616"));
        assert_eq!(sum("18446744073709551619", "0").as_deref(), Some("18446744073709551620"));
        assert_eq!(sum("18446744073709551616", "1").as_deref(), Some("18446744073709551616"));
    }
}
