/* exp2.h - powers of 2 for the weights of attention, on the sixteen lanes of vec_*.h, with the same bits on
 * every instruction set.  x below -100 counts as -100, NaN stays NaN; x is at most 100.
 *
 * A polynomial of degree 3 on the difference of x and the nearest integer, -0.5 to 0.5.  Its relative error
 * of 7.5e-5 is enough for weights in BF16. */
#ifndef QUERN_KERNELS_CPU_ATTENTION_EXP2_H
#define QUERN_KERNELS_CPU_ATTENTION_EXP2_H

VFN vf exp2_3(vf x)
{
	x = v_max(v_set1(-100), x);
	const vf r = v_rest(x), n = v_sub(x, r);
	vf p = v_set1(0.0551716685295105f);
	p = v_fma(p, r, v_set1(0.2426111251115799f));
	p = v_fma(p, r, v_set1(0.6932609677314758f));
	p = v_fma(p, r, v_set1(0.9999280571937561f));
	return v_scale_by(p, n);
}

#endif
